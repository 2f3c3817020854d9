//! `lens data alfworld`: sources, verification, statistics, and generated games as files.

use std::io::Write;
use std::path::{Path, PathBuf};

use lens_env::alfworld::file::Template;
use lens_env::alfworld::generator::{Recipe, Split};
use lens_env::alfworld::statistics::{Statistics, Summary};
use lens_env::alfworld::{Game, Problem, TaskKind, archive, planner};
use lens_env::{Benchmark, EnvError};

use super::Games;
use crate::failure::Failure;

const SOURCES: &str = "\
The official games (release 2.1.2) are one archive; give it as it is with --data:
  https://github.com/alfworld/alfworld/releases/download/0.4.0/json_2.1.2_tw-pddl.zip
ALFWorld's own \"alfworld-download\" (pip install alfworld==0.4.2) unpacks the same into
  $ALFWORLD_DATA/json_2.1.1/<split>/<task>/<trial>/game.tw-pddl
which can be given with --data as well. Releases 2.1.1, 2.1.2 and 2.1.3 are understood.
TCOD's task lists (Hard split, reference actions) are four .jsonl files in its repository,
  https://github.com/kokolerk/TCOD, folder TCOD_examples/alfworld/alfworld_data
and are given as a folder with --lists, or found in a folder named \"tcod\" beside the games.
Without any of this the built-in games are used.
";

/// Show where to download ALFWorld's games, verify a local copy and count it
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Data {
    #[command(flatten)]
    games: Games,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Print statistics of the training games, real and generated side by side
    Statistics(Games),
    /// Write generated games as files that ALFWorld's own engine can load
    Export(Export),
}

impl Data {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        match &self.what {
            None => self.count(out),
            Some(What::Statistics(games)) => statistics(games, out),
            Some(What::Export(export)) => export.run(out),
        }
    }

    fn count(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let name = if let Some(path) = &self.games.data {
            path.display().to_string()
        } else {
            writeln!(out, "{SOURCES}")?;
            format!("built-in games (seed {})", self.games.seed)
        };
        let alfworld = self.games.open(&[])?;
        let splits = alfworld.splits();
        write!(out, "{name}\n\n{:<32}", "kind of task")?;
        for split in &splits {
            write!(out, "{:>14}", split.name)?;
        }
        writeln!(out)?;
        for kind in TaskKind::ALL {
            write!(out, "{:<32}", kind.name())?;
            for split in &splits {
                let tasks = alfworld.tasks(&split.name)?;
                write!(
                    out,
                    "{:>14}",
                    tasks.iter().filter(|task| task.kind == kind.name()).count()
                )?;
            }
            writeln!(out)?;
        }
        write!(out, "{:<32}", "all")?;
        for split in &splits {
            write!(out, "{:>14}", split.tasks)?;
        }
        writeln!(out, "\n")?;
        if self.games.data.is_some() {
            let left_out = alfworld.left_out();
            writeln!(
                out,
                "Every domain, grammar, problem and goal was checked: all games are sound."
            )?;
            writeln!(
                out,
                "Left out, as ALFWorld does: {} with movable receptacles or sliced things, {} unsolvable.",
                left_out.by_kind, left_out.unsolvable
            )?;
            let lists = if alfworld.has_lists() { "found" } else { "not found" };
            writeln!(out, "TCOD's task lists: {lists}.")?;
        }
        Ok(())
    }
}

fn statistics(games: &Games, out: &mut dyn Write) -> Result<(), Failure> {
    let measure = |games: &Games| -> Result<Statistics, Failure> {
        let alfworld = games.open(&["train".to_owned()])?;
        let mut statistics = Statistics::default();
        for task in alfworld.tasks("train")? {
            statistics.add(&*alfworld.game(&task.id)?);
        }
        Ok(statistics)
    };
    let mut columns = Vec::new();
    if games.data.is_some() {
        columns.push(("real", measure(games)?));
    }
    let generated = Games { data: None, lists: None, seed: games.seed };
    columns.push(("generated", measure(&generated)?));
    write!(out, "{:<44}", "training games")?;
    for (name, _) in &columns {
        write!(out, "{name:>22}")?;
    }
    writeln!(out)?;
    let mut row = |label: &str, cell: &dyn Fn(&Statistics) -> String| -> Result<(), Failure> {
        write!(out, "{label:<44}")?;
        for (_, statistics) in &columns {
            write!(out, "{:>22}", cell(statistics))?;
        }
        writeln!(out)?;
        Ok(())
    };
    let range = |s: &Summary| format!("{:.2} ({:.0}-{:.0})", s.mean(), s.least, s.most);
    row("games", &|s| s.games.to_string())?;
    for index in 0..4 {
        let room = columns.first().and_then(|(_, s)| s.rooms.get(index)).map_or("", |room| room.0);
        row(&format!("  in a {room}"), &|s| s.rooms[index].1.to_string())?;
        row("    receptacles, objects", &|s| {
            format!("{:.1}, {:.1}", s.rooms[index].2.mean(), s.rooms[index].3.mean())
        })?;
    }
    row("receptacles", &|s| range(&s.receptacles))?;
    row("objects", &|s| range(&s.objects))?;
    row("commands at the start", &|s| range(&s.commands))?;
    row("closed receptacles, %", &|s| format!("{:.1}", s.closed.mean()))?;
    row("places with several receptacles, %", &|s| format!("{:.1}", s.shared_places.mean()))?;
    row("placed objects in several receptacles, %", &|s| format!("{:.1}", s.doubly_placed.mean()))?;
    row("objects in no receptacle, %", &|s| format!("{:.1}", s.unplaced.mean()))?;
    row("wanted objects", &|s| range(&s.wanted))?;
    row("wanted objects behind doors, %", &|s| format!("{:.1}", s.wanted_closed.mean()))?;
    row("shortest plan", &|s| range(&s.plan))?;
    for length in 3..=10 {
        row(&format!("  of length {length}, %"), &|s| {
            let count = s.plan_lengths.get(length).copied().unwrap_or(0);
            format!("{:.1}", 100.0 * count as f64 / s.games.max(1) as f64)
        })?;
    }
    Ok(())
}

/// Write generated games as files that ALFWorld's own engine can load
#[derive(Debug, clap::Args)]
struct Export {
    /// Where to take ALFWorld's rules and texts from: a real game.tw-pddl (or a folder or archive that has one), or
    /// the "data" folder of the installed alfworld package (with alfred.pddl and alfred.twl2).
    #[arg(long, value_name = "PATH")]
    template: PathBuf,
    /// The folder to write to; games go to <split>/<task>/<trial>/game.tw-pddl in it.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// The split to write.
    #[arg(long, value_parser = ["train", "valid_seen", "valid_unseen"], default_value = "valid_unseen")]
    split: String,
    /// Write only this many games.
    #[arg(long)]
    limit: Option<u32>,
    /// The seed of the games.
    #[arg(long, default_value_t = lens_env::alfworld::generator::BUILT_IN_SEED)]
    seed: u64,
}

impl Export {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let template = self.template()?;
        let split = Split::ALL
            .into_iter()
            .find(|split| split.name() == self.split)
            .ok_or_else(|| Failure::user(format!("no split \"{}\"", self.split)))?;
        let count = self.limit.unwrap_or(u32::MAX).min(split.size());
        for index in 0..count {
            let recipe = Recipe::new(self.seed, split, index);
            let generated = recipe.generate();
            let game = Game::new(
                &generated.problem.clone().canonical(),
                template.wording(),
                generated.sentence.clone(),
                Vec::new(),
            );
            let plan = planner::shortest_plan(&game, game.initial()).ok_or_else(|| {
                Failure::Runtime(anyhow::anyhow!("{} has no solution", recipe.id()))
            })?;
            let folder = self.out.join(recipe.id());
            let file = template.game_file(&generated.problem, &generated.sentence, &plan);
            write_file(&folder, "game.tw-pddl", &file)?;
            write_file(&folder, "traj_data.json", &trajectory(&generated.problem))?;
        }
        writeln!(out, "{count} games written to {}", self.out.join(split.name()).display())?;
        Ok(())
    }

    fn template(&self) -> Result<Template, Failure> {
        let (domain, grammar) =
            (self.template.join("alfred.pddl"), self.template.join("alfred.twl2"));
        if domain.is_file() && grammar.is_file() {
            let read = |path: &Path| {
                std::fs::read_to_string(path)
                    .map_err(|source| EnvError::Read { path: path.to_owned(), source })
            };
            let name = self.template.display().to_string();
            return Ok(Template::from_package(&name, read(&domain)?, &read(&grammar)?)?);
        }
        let game = archive::first(&self.template)?;
        Ok(Template::from_game_file(&game.path, &game.bytes)?)
    }
}

fn write_file(folder: &Path, name: &str, text: &str) -> Result<(), Failure> {
    let path = folder.join(name);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, text))
        .map_err(|error| Failure::user(format!("cannot write {}: {error}", path.display())))
}

/// The part of a `traj_data.json` that ALFWorld's game list needs.
fn trajectory(problem: &Problem) -> String {
    let word = |name: &str| name.trim_end_matches("Type").to_owned();
    let (object, target) = (word(&problem.goal_object), word(&problem.goal_target));
    let light = problem.kind == TaskKind::Light;
    serde_json::json!({
        "task_type": problem.kind.name(),
        "pddl_params": {
            "object_target": object,
            "parent_target": if light { String::new() } else { target.clone() },
            "toggle_target": if light { target } else { String::new() },
            "mrecep_target": "",
            "object_sliced": false,
        },
        "turk_annotations": { "anns": [{ "task_desc": problem.goal().sentence(0) }] },
    })
    .to_string()
}
