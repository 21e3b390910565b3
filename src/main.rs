//! agent-forge, the operator.

use std::{io::IsTerminal as _, process::ExitCode};

use agent_forge::{
    args::Args,
    commands::{
        self, cli,
        report::{self, Verdict},
    },
    run,
    telemetry::logging,
};
use tokio::signal::unix::{SignalKind, signal};

async fn stop_signal() {
    let (Ok(mut term), Ok(mut int)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}

/// A command could not find out.
fn cannot_tell(error: anyhow::Error) -> ExitCode {
    let said = report::visible(&format!("{error:#}"));
    eprintln!("agent-forge: {said}");
    Verdict::Unknown.into()
}

/// Runs the command and returns its exit code. Once there is a log, the log contains the reason of a failure, in the
/// log's format. Before that, the failure is returned as an error.
async fn start(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(command) = &args.command {
        let verdict = commands::run(&args, command).await;
        return Ok(verdict.map_or_else(cannot_tell, ExitCode::from));
    }
    let json = args.log_format.is_json(std::io::stderr().is_terminal());
    let telemetry = logging::install(json)?;
    let ended = run::operator(args, stop_signal()).await;
    let code = match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            if tracing::enabled!(tracing::Level::ERROR) {
                tracing::error!("{e:#}");
            } else {
                // A log that is turned off must not hide why the operator does not run.
                eprintln!("agent-forge: {e:#}");
            }
            ExitCode::FAILURE
        }
    };
    telemetry.shutdown();
    Ok(code)
}

/// Bytes of a thread's stack. A build without optimisation needs more than the usual 2 MiB. Only what is used takes memory.
const STACK: usize = 16 << 20;

fn main() -> ExitCode {
    let args = cli::parse();
    // One TLS provider for everything. `kube` and `reqwest` are built without one.
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        eprintln!("agent-forge: a TLS provider was installed before main");
        return ExitCode::FAILURE;
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(STACK)
        .build()
    {
        Ok(runtime) => runtime,
        Err(e) => {
            eprintln!("agent-forge: starting the runtime: {e}");
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(start(args));
    // A DNS lookup that is still under way must not delay the end.
    runtime.shutdown_background();
    match ended {
        Ok(code) => code,
        Err(e) => {
            eprintln!("agent-forge: {e:#}");
            ExitCode::FAILURE
        }
    }
}
