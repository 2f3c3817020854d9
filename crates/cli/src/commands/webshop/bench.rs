//! How fast the shop is, in CPU time, and how much memory it takes.

use std::io::Write;
use std::sync::Arc;

use lens_env::webshop::search::IndexBuilder;
use lens_env::webshop::{GoalKind, ObservationMode, Shop, WebShop};
use lens_env::{Actions, Benchmark, Environment, Status, Task, View};
use lens_opd::random::{Purpose, Stream, StreamKey};

use super::Products;
use crate::cpu_time::CpuTime;
use crate::failure::Failure;

/// Turns of one episode, the paper's limit.
const TURNS: usize = 15;

/// Time the native shop
#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    products: Products,
    /// Steps to time.
    #[arg(long, default_value_t = 100_000)]
    steps: usize,
    /// Searches to time.
    #[arg(long, default_value_t = 2000)]
    searches: usize,
    /// Sessions that run at once in the last measurement.
    #[arg(long, default_value_t = 1000)]
    sessions: usize,
}

impl Bench {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let before = resident_megabytes();
        let start = CpuTime::now();
        let shop = self.products.open(GoalKind::Synthetic)?;
        let opened = start.seconds();
        let label = format!("open a shop of {} products", shop.catalog().products.len());
        writeln!(out, "{label:<52}{opened:>12.2} s")?;
        if let (Some(before), Some(after)) = (before, resident_megabytes()) {
            writeln!(out, "{:<52}{:>12.0} MB", "  in memory", after - before)?;
        }
        Self::index(&shop, out)?;
        self.searches(&shop, out)?;
        let webshop = Arc::new(WebShop::new(shop, ObservationMode::TextRich));
        let tasks = webshop.tasks("train")?;
        self.steps(&webshop, &tasks, out)?;
        Self::snapshots(&webshop, &tasks, out)?;
        self.many(&webshop, &tasks, out)
    }

    /// Builds the index once more, on its own.
    fn index(shop: &Shop, out: &mut dyn Write) -> Result<(), Failure> {
        let start = CpuTime::now();
        let mut builder = IndexBuilder::default();
        for product in &shop.catalog().products {
            builder.add(&product.search_text());
        }
        let index = builder.finish(Vec::new());
        let seconds = start.seconds();
        writeln!(out, "{:<52}{seconds:>12.2} s", "build the search index")?;
        let label = format!(
            "  {} terms, {} postings, in memory",
            index.term_count(),
            index.posting_count()
        );
        writeln!(out, "{label:<52}{:>12.1} MB", index.bytes() as f64 / 1e6)?;
        Ok(())
    }

    /// Searches for instructions, which are long queries.
    fn searches(&self, shop: &Shop, out: &mut dyn Write) -> Result<(), Failure> {
        let count = self.searches.min(shop.goals().len());
        let queries: Vec<String> =
            (0..count).filter_map(|number| Some(shop.goal(number)?.text.to_lowercase())).collect();
        let mut slowest = 0.0_f64;
        let start = CpuTime::now();
        for (number, query) in queries.iter().enumerate() {
            let one = CpuTime::now();
            shop.search(query, number, 0)
                .map_err(|error| Failure::Runtime(anyhow::anyhow!("{query}: {error}")))?;
            slowest = slowest.max(one.seconds());
        }
        let mean = start.seconds() / queries.len().max(1) as f64;
        let label = format!("search for {} whole instructions, mean", queries.len());
        writeln!(out, "{label:<52}{:>12.1} us", mean * 1e6)?;
        writeln!(out, "{:<52}{:>12.1} us", "  slowest", slowest * 1e6)?;
        Ok(())
    }

    /// Random play in fresh episodes; choosing the actions is timed as well.
    fn steps(
        &self,
        webshop: &Arc<WebShop>,
        tasks: &[Task],
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let mut environment = Arc::clone(webshop).environment()?;
        let mut stream = stream();
        let (mut done, mut actions, mut resets) = (0_usize, 0, 0_usize);
        let start = CpuTime::now();
        for task in tasks.iter().cycle() {
            let mut view = environment.reset(task)?;
            resets += 1;
            while view.turn < TURNS && view.status == Status::Running {
                actions += count(&view);
                view = environment.step(&choose(&view, &mut stream))?;
                done += 1;
            }
            if done >= self.steps {
                break;
            }
        }
        let rate = done as f64 / start.seconds();
        let label = format!(
            "steps with page and {:.1} actions, {resets} resets included",
            actions as f64 / done as f64
        );
        writeln!(out, "{label:<52}{rate:>12.0} steps per CPU-second")?;
        Ok(())
    }

    fn snapshots(
        webshop: &Arc<WebShop>,
        tasks: &[Task],
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        const ROUNDS: usize = 100;
        let mut environment = Arc::clone(webshop).environment()?;
        let mut stream = stream();
        let (mut seconds, mut done) = (0.0, 0_usize);
        for task in tasks.iter().take(200) {
            let mut view = environment.reset(task)?;
            for _ in 0..5 {
                view = environment.step(&choose(&view, &mut stream))?;
            }
            let start = CpuTime::now();
            for _ in 0..ROUNDS {
                let snapshot = environment.snapshot()?;
                environment.restore(&snapshot)?;
            }
            seconds += start.seconds();
            done += ROUNDS;
        }
        let each = seconds / done as f64;
        writeln!(
            out,
            "{:<52}{:>12.2} us",
            "snapshot and restore, with page and actions",
            each * 1e6
        )?;
        Ok(())
    }

    /// Many sessions over the one shop, stepped in turn.
    fn many(
        &self,
        webshop: &Arc<WebShop>,
        tasks: &[Task],
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let before = resident_megabytes();
        let start = CpuTime::now();
        let mut running: Vec<(Box<dyn Environment>, View)> = Vec::with_capacity(self.sessions);
        for task in tasks.iter().cycle().take(self.sessions) {
            let mut environment = Arc::clone(webshop).environment()?;
            let view = environment.reset(task)?;
            running.push((environment, view));
        }
        let mut stream = stream();
        let mut done = 0_usize;
        for _ in 0..TURNS {
            for (environment, view) in &mut running {
                if view.status == Status::Running {
                    *view = environment.step(&choose(view, &mut stream))?;
                    done += 1;
                }
            }
        }
        let label = format!("{} sessions at once, {done} steps", running.len());
        let rate = done as f64 / start.seconds();
        writeln!(out, "{label:<52}{rate:>12.0} steps per CPU-second")?;
        if let (Some(before), Some(after)) = (before, resident_megabytes()) {
            let each = (after - before).max(0.0) * 1e3 / running.len().max(1) as f64;
            writeln!(out, "{:<52}{each:>12.1} kB", "  a live session with its latest view")?;
        }
        Ok(())
    }
}

fn stream() -> Stream {
    StreamKey::new(0, 0, 0, Purpose::Rollout, 0).open()
}

fn count(view: &View) -> usize {
    match &view.actions {
        Actions::Commands(commands) => commands.len(),
        Actions::Templates { .. } | Actions::Free => 0,
    }
}

/// A random action; a search is for the task's own words.
fn choose(view: &View, stream: &mut Stream) -> String {
    let Actions::Commands(commands) = &view.actions else { return String::new() };
    let place = stream.below(commands.len() as u64).unwrap_or(0) as usize;
    match commands.get(place).map(String::as_str) {
        Some("search[<query>]" | "click[search]") => format!("search[{}]", view.task),
        Some(action) => action.to_owned(),
        None => String::new(),
    }
}

/// Resident memory of this process, where the system tells.
pub(super) fn resident_megabytes() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes / 1e3)
}
