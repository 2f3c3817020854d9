//! `lens view`: a run's records in a browser, as one file, or in the terminal.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use lens_report::doctor::examine;
use lens_report::summary::Summary;
use lens_report::text;
use lens_view::api::Library;
use lens_view::server::Server;

use super::figures::load;
use crate::failure::Failure;

/// Look at runs in a browser: curves, episodes, forks and tokens
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lens view runs
  lens view runs/laboratory/seed-42 --export run.html")]
pub(crate) struct View {
    /// Run folders, or folders that hold runs.
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Write one HTML file that opens from disk, instead of serving.
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    export: Option<PathBuf>,
    /// Episodes per run in the exported file.
    #[arg(long, default_value_t = 40, requires = "export")]
    episodes: usize,
    /// Print a summary in the terminal, instead of serving.
    #[arg(long)]
    text: bool,
    /// The port; any free one by default.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// The address to listen on. Anything but loopback lets others read your runs.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// A name browsers elsewhere use for this machine; requests that name another host are refused.
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Do not open a browser.
    #[arg(long)]
    no_open: bool,
}

impl View {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        if self.text {
            for run in load(&self.runs)? {
                writeln!(out, "{}", text::summary(&Summary::new(&run), &examine(&run)))?;
            }
            return Ok(());
        }
        if let Some(file) = &self.export {
            load(&self.runs)?;
            let library = Library::open(self.runs.clone());
            let document = lens_view::export::document(&library, self.episodes)?;
            lens_train::files::write_atomically(file, document.as_bytes())?;
            writeln!(out, "wrote {}", file.display())?;
            return Ok(());
        }
        load(&self.runs)?;
        self.serve(out)
    }

    fn serve(self, out: &mut dyn Write) -> Result<(), Failure> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let address = SocketAddr::new(self.host, self.port);
        runtime.block_on(async {
            let server = Server::listen(address, self.runs, self.allow_host).await?;
            let page = server.address();
            writeln!(out, "{page}  ({} runs; Ctrl-C stops)", server.runs())?;
            out.flush()?;
            if !self.no_open {
                open_browser(&page);
            }
            let stop = async {
                // Without a signal handler Ctrl-C ends the process all the same.
                let _ = tokio::signal::ctrl_c().await;
            };
            server.serve(stop).await?;
            Ok(())
        })
    }
}

/// Opens the page, where there is something to open it with.
fn open_browser(page: &str) {
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let quiet = std::process::Stdio::null;
    // The address is printed; a machine without a browser is no failure.
    let _ = std::process::Command::new(opener)
        .arg(page)
        .stdin(quiet())
        .stdout(quiet())
        .stderr(quiet())
        .spawn();
}
