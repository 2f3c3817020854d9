//! `lens sweep --plan`: how many seeds and games a difference needs.

use std::io::Write;

use lens_config::Config;
use lens_opd::stats::crossed::Cell;
use lens_opd::stats::power::Spread;
use lens_train::Run;
use lens_train::evaluate::Evaluation;

use super::compare::cells_of;
use super::contender::Contender;
use super::table::BySeed;
use super::{Job, Sweep, finished, kept, result_file};
use crate::assemble;
use crate::failure::Failure;
use crate::wording::counted;

/// Numbers of games that are planned for, besides the configured one.
const GAMES: [usize; 6] = [100, 200, 500, 1000, 2000, 5000];

impl Sweep {
    /// Prints what a difference needs.
    pub(super) fn plan(
        &self,
        config: &Config,
        jobs: &[Job],
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        if !(self.difference > 0.0 && self.difference <= 100.0) {
            return Err(Failure::user(format!(
                "--difference must be above 0 and at most 100 points, not {}",
                self.difference
            )));
        }
        let difference = self.difference / 100.0;
        let (spread, source) = self.spread(jobs)?;
        let percent = |share: f64| format!("{:.1}", 100.0 * share);
        writeln!(
            out,
            "a difference of {} points, paired, 95 % interval, 80 % power",
            self.difference
        )?;
        writeln!(
            out,
            "deviation in points: {} between seeds, {} between games, {} of one game",
            percent(spread.seeds),
            percent(spread.games),
            percent(spread.rest)
        )?;
        writeln!(out, "  {source}")?;
        let configured = self.games(config)?;
        let mut games: Vec<usize> = GAMES.into_iter().chain([configured]).collect();
        games.sort_unstable();
        games.dedup();
        writeln!(out, "{:>8}  {:>6}", "games", "seeds")?;
        for count in games {
            let seeds = spread
                .seeds_needed(difference, count)
                .map_or("no number is enough".to_owned(), |seeds| seeds.to_string());
            let mark = if count == configured { "  (as configured)" } else { "" };
            writeln!(out, "{count:>8}  {seeds:>6}{mark}")?;
        }
        let seeds = config.seeds.len();
        let words = counted(seeds as u64, "seed");
        let detectable = spread.detectable(seeds, configured);
        if detectable.is_finite() {
            writeln!(
                out,
                "as configured: {words} and {configured} games detect {} points",
                percent(detectable)
            )?;
        } else {
            writeln!(out, "as configured: {words}, too few to detect anything")?;
        }
        Ok(())
    }

    /// Games of the final evaluation, all splits together.
    fn games(&self, config: &Config) -> Result<usize, Failure> {
        let benchmark = assemble::benchmark(config)?;
        let mut games = 0;
        for split in &config.task.eval_splits {
            let tasks = benchmark.tasks(split)?.len();
            games += self.limit.map_or(tasks, |limit| tasks.min(limit));
        }
        Ok(games)
    }

    /// How a finished run played: kept, or in the run's folder. Official games are not planned for.
    fn played(&self, job: &Job) -> Result<Option<Vec<Evaluation>>, Failure> {
        if let Some(folder) = &self.results {
            let (folder, limit) = (folder.clone(), self.limit);
            let results = kept::Results { folder, limit, official: false };
            if let Some(result) = results.read(job)? {
                return Ok(Some(result.evaluations));
            }
        }
        let folder = Run::folder(&job.config, job.seed);
        let result = finished(&result_file(&folder, "final", self.limit));
        Ok(result.map(|result| result.evaluations.iter().map(kept::by_place).collect()))
    }

    /// The spread of finished runs: of the method with most seeds beside the baseline; assumed where there are too few.
    fn spread(&self, jobs: &[Job]) -> Result<(Spread, String), Failure> {
        let results = |student: &str, contender: &Contender| -> Result<BySeed, Failure> {
            let mut done = BySeed::new();
            for job in jobs {
                if job.student == student
                    && job.contender.as_ref() == Some(contender)
                    && let Some(evaluations) = self.played(job)?
                {
                    done.insert(job.seed, evaluations);
                }
            }
            Ok(done)
        };
        let mut best: Option<(Vec<Cell>, String)> = None;
        let baseline = Contender::method(self.against);
        // Every row is there with every seed, so those of the first seed are all.
        let first = jobs.first().map(|job| job.seed);
        for job in jobs.iter().filter(|job| Some(job.seed) == first) {
            let Some(contender) = job.contender.as_ref().filter(|one| **one != baseline) else {
                continue;
            };
            let base = results(&job.student, &baseline)?;
            let treated = results(&job.student, contender)?;
            let cells = cells_of(&base, &treated, |_| true);
            if cells.len() > best.as_ref().map_or(0, |(cells, _)| cells.len()) {
                let source = format!("measured: {contender} and {baseline} of {}", job.student);
                best = Some((cells, source));
            }
        }
        if let Some((cells, source)) = best {
            let measured =
                Spread::measured(&cells).map_err(|error| Failure::Runtime(error.into()))?;
            if let Some(spread) = measured {
                return Ok((spread, source));
            }
        }
        let source =
            format!("assumed: fewer than 2 finished seeds of {} and another method", self.against);
        Ok((Spread::ASSUMED, source))
    }
}
