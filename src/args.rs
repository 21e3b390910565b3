//! The command line.
//!
//! Every flag also has an environment variable and a line in `--help`. The flags of the predecessor are accepted. Those
//! that have no meaning here cause a warning.

mod chaos;
mod lease;
mod scaling;
mod target;

use std::{path::PathBuf, time::Duration};

use agent_forge_actors::domain::server::{HostPattern, ServerRule};
use clap::{Parser, ValueEnum, builder::BoolishValueParser};
use kube::Client;

pub use self::{chaos::ChaosArgs, lease::LeaseArgs, scaling::ScalingArgs, target::TargetArgs};
use crate::{
    cluster::scope::Scope,
    commands::Command,
    telemetry::tls::{self, MinVersion},
    vsphere::UPLOAD_LIMIT,
};

/// agent-forge: workers on demand for OpenShift Hosted Control Planes on vSphere. Without a subcommand it runs the
/// operator.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "agent-forge",
    version,
    about,
    max_term_width = 110,
    args_override_self = true
)]
pub struct Args {
    /// Which API server, and as whom.
    #[command(flatten)]
    pub target: TargetArgs,

    /// Address of /metrics; `0` turns it off.
    #[arg(
        long,
        env = "AGENT_FORGE_METRICS_BIND_ADDRESS",
        default_value = "127.0.0.1:8080",
        value_name = "HOST:PORT"
    )]
    pub metrics_bind_address: String,

    /// Address of /healthz and /readyz; `0` turns them off.
    #[arg(
        long,
        env = "AGENT_FORGE_HEALTH_PROBE_BIND_ADDRESS",
        default_value = ":8081",
        value_name = "HOST:PORT"
    )]
    pub health_probe_bind_address: String,

    /// Metrics over HTTPS, for those whose token may `get` the path /metrics. By default on each address that is not
    /// loopback. Without it, every client that reaches the address reads the metrics.
    #[arg(long, env = "AGENT_FORGE_METRICS_SECURE", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub metrics_secure: Option<bool>,

    /// Directory with the certificate of metrics and web page, for example a mounted Secret. A change is shown within 10 s.
    /// Without it, each start makes a certificate that signs itself.
    #[arg(long, env = "AGENT_FORGE_METRICS_CERT_PATH", value_name = "DIRECTORY")]
    pub metrics_cert_path: Option<PathBuf>,

    /// File of the certificate in that directory.
    #[arg(
        long,
        env = "AGENT_FORGE_METRICS_CERT_NAME",
        default_value = "tls.crt",
        value_name = "FILE"
    )]
    pub metrics_cert_name: String,

    /// File of its key.
    #[arg(
        long,
        env = "AGENT_FORGE_METRICS_CERT_KEY",
        default_value = "tls.key",
        value_name = "FILE"
    )]
    pub metrics_cert_key: String,

    /// Lowest version of TLS of metrics and web page.
    #[arg(
        long,
        env = "AGENT_FORGE_TLS_MIN_VERSION",
        default_value = "VersionTLS12",
        value_name = "VERSION"
    )]
    pub tls_min_version: MinVersion,

    /// The web page over HTTPS. By default on each address that is not loopback. Turn it off behind a proxy that speaks
    /// HTTP to the page: then tokens travel unencrypted from there.
    #[arg(long, env = "AGENT_FORGE_WEB_SECURE", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub web_secure: Option<bool>,

    /// Address of the web page, which shows pools, machines and actors. Off by default. On a loopback address it needs no
    /// token. On any other address each viewer needs a token of this cluster, and sees the namespaces whose
    /// VsphereAgentPools that user may list.
    #[arg(
        long,
        env = "AGENT_FORGE_WEB_BIND_ADDRESS",
        default_value = "0",
        value_name = "HOST:PORT"
    )]
    pub web_bind_address: String,

    /// Address of the debug endpoint: the web page, which here can kill actors by a request. Loopback only. Off by default.
    #[arg(
        long,
        env = "AGENT_FORGE_DEBUG_BIND_ADDRESS",
        default_value = "0",
        value_name = "HOST:PORT"
    )]
    pub debug_bind_address: String,

    /// How long a powered-on VM may take to register its Agent.
    #[arg(long, env = "AGENT_FORGE_AGENT_DISCOVERY_TIMEOUT", default_value = "30m", value_parser = duration, value_name = "DURATION")]
    pub agent_discovery_timeout: Duration,

    /// How often each vCenter is scanned for orphan VMs: VMs with this cluster's mark that no VsphereAgent records. At
    /// least 10s.
    #[arg(long, env = "AGENT_FORGE_ORPHAN_SCAN_INTERVAL", default_value = "10m", value_parser = scan_interval, value_name = "DURATION")]
    pub orphan_scan_interval: Duration,

    /// Limits.
    #[command(flatten)]
    pub scaling: ScalingArgs,

    /// Accept discovery ISO URLs at loopback or link-local addresses (labs only).
    #[arg(long, env = "AGENT_FORGE_ISO_ALLOW_LOCAL_SOURCE", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pub iso_allow_local_source: bool,

    /// Largest discovery ISO that is fetched, in bytes.
    #[arg(long, env = "AGENT_FORGE_ISO_MAX_BYTES", default_value_t = 4 << 30, value_parser = clap::value_parser!(u64).range(1..), value_name = "BYTES")]
    pub iso_max_bytes: u64,

    /// Longest time in which an ISO download may deliver less than 256 KiB.
    #[arg(long, env = "AGENT_FORGE_ISO_STALL_TIMEOUT", default_value = "30s", value_parser = duration, value_name = "DURATION")]
    pub iso_stall_timeout: Duration,

    /// Longest time of an ISO download. At most 12h.
    #[arg(long, env = "AGENT_FORGE_ISO_DEADLINE", default_value = "1h", value_parser = iso_deadline, value_name = "DURATION")]
    pub iso_deadline: Duration,

    /// PEM file with CA certificates for the image service. They are trusted in addition to the system's CAs.
    #[arg(long, env = "AGENT_FORGE_ISO_CA_FILE", value_name = "FILE")]
    pub iso_ca_file: Option<PathBuf>,

    /// Accept http:// vCenter servers (labs only). Credentials travel unencrypted.
    #[arg(long, env = "AGENT_FORGE_VSPHERE_ALLOW_HTTP", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pub vsphere_allow_http: bool,

    /// Accept vCenter servers at loopback or link-local addresses (labs only).
    #[arg(long, env = "AGENT_FORGE_VSPHERE_ALLOW_LOCAL_SERVER", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pub vsphere_allow_local_server: bool,

    /// The only hosts that credentials Secrets may name as vCenter: names, addresses, `*.domain`. Empty: any host. The
    /// status of pools says why a host cannot be reached only if it is listed here. Otherwise only the log does.
    #[arg(
        long,
        env = "AGENT_FORGE_ALLOWED_VCENTERS",
        value_delimiter = ',',
        value_name = "HOSTS"
    )]
    pub allowed_vcenters: Vec<HostPattern>,

    /// The only namespaces, beside a pool's own, from which credentials Secrets may be read. Empty: the namespaces of
    /// --namespaces; without that flag, any namespace. Each Secret must also admit the pool's namespace with the
    /// annotation allow-pools-from.
    #[arg(
        long,
        env = "AGENT_FORGE_SECRET_NAMESPACES",
        value_delimiter = ',',
        value_name = "NAMESPACES"
    )]
    pub secret_namespaces: Vec<String>,

    /// The only namespaces that are served: those of pools, control planes and InfraEnvs. Default: all. With this flag,
    /// Roles in these namespaces are enough.
    #[arg(
        long,
        env = "AGENT_FORGE_NAMESPACES",
        value_delimiter = ',',
        global = true,
        value_name = "NAMESPACES"
    )]
    pub namespaces: Vec<String>,

    /// Identity of this cluster in the marks of VMs. Default: the uid of the namespace kube-system. With --namespaces
    /// the default is the uid of the operator's own namespace. Do not change it while VMs exist.
    #[arg(long, env = "AGENT_FORGE_CLUSTER_ID", value_name = "ID")]
    pub cluster_id: Option<String>,

    /// Change nothing: plan in earnest, and write only status, Events and the own Lease. While the predecessor holds its
    /// Lease, write no status either: the log has the plan.
    #[arg(long, env = "AGENT_FORGE_DRY_RUN", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pub dry_run: bool,

    /// Give hosts of BYOH (bring your own host) their scripts, by AgentForgeInstallerConfigs. Off by default. It needs the
    /// kinds and the rules of config/overlays/byoh-installer, and not with --namespaces: a ByoHost may be in any namespace.
    #[arg(long, env = "AGENT_FORGE_BYOH_INSTALLER", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pub byoh_installer: bool,

    /// Log format. `auto`: `human` on a terminal, else `json`.
    #[arg(
        long,
        env = "AGENT_FORGE_LOG_FORMAT",
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    pub log_format: LogFormat,

    /// Leader election.
    #[command(flatten)]
    pub lease: LeaseArgs,

    /// Chaos.
    #[command(flatten)]
    pub chaos: ChaosArgs,

    /// Accepted for the predecessor's manifests.
    #[command(flatten, next_help_heading = LEGACY)]
    pub legacy: Legacy,

    /// Namespace of the operator that runs, if these are its flags. A command has it.
    #[arg(skip)]
    pub home: Option<String>,

    /// What to do instead of running the operator.
    #[command(subcommand)]
    pub command: Option<Command>,
}

impl Args {
    /// The only namespaces whose Secrets pools of other namespaces may use. Empty means any namespace.
    #[must_use]
    pub fn secret_bound(&self) -> &[String] {
        if !self.secret_namespaces.is_empty() {
            return &self.secret_namespaces;
        }
        // An empty value names all.
        match Scope::of(&self.namespaces).is_all() {
            true => &[],
            false => &self.namespaces,
        }
    }

    /// Whether the installer for BYOH runs.
    ///
    /// # Errors
    /// Only some namespaces are served. It would not see each ByoHost that needs its scripts.
    pub fn installs_byoh(&self) -> anyhow::Result<bool> {
        let sees_all = Scope::of(&self.namespaces).is_all();
        anyhow::ensure!(
            !self.byoh_installer || sees_all,
            "--byoh-installer does not work with --namespaces: a ByoHost may be in any namespace"
        );
        Ok(self.byoh_installer)
    }

    /// The operator's own namespace, as far as this process knows.
    #[must_use]
    pub fn home(&self, client: &Client) -> String {
        let own = || client.default_namespace().to_owned();
        self.home.clone().unwrap_or_else(own)
    }

    /// The certificate of metrics and web page; `None` if the operator makes one.
    #[must_use]
    pub fn certificate(&self) -> Option<tls::Files> {
        let folder = self.metrics_cert_path.as_ref()?;
        Some(tls::Files {
            certificate: folder.join(&self.metrics_cert_name),
            key: folder.join(&self.metrics_cert_key),
        })
    }

    /// Which vCenters credentials Secrets may name.
    #[must_use]
    pub fn server_rule(&self) -> ServerRule {
        ServerRule {
            allow_http: self.vsphere_allow_http,
            allow_local: self.vsphere_allow_local_server,
            allowed: self.allowed_vcenters.clone(),
        }
    }
}

/// Format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// `Human` on a terminal, else `Json`.
    #[default]
    Auto,
    /// Text.
    Human,
    /// One JSON object for each line.
    Json,
}

impl LogFormat {
    /// Whether lines are JSON. `terminal`: whether the log goes to a terminal.
    #[must_use]
    pub fn is_json(self, terminal: bool) -> bool {
        match self {
            Self::Auto => !terminal,
            Self::Human => false,
            Self::Json => true,
        }
    }
}

/// The heading of the predecessor's flags in `--help`.
const LEGACY: &str = "Accepted for the predecessor's manifests";

/// The predecessor's flags that have no meaning here.
#[derive(Clone, Debug, Parser)]
pub struct Legacy {
    /// Directory of the certificate for webhooks. There is no webhook.
    #[arg(long, env = "AGENT_FORGE_WEBHOOK_CERT_PATH", value_name = "DIRECTORY")]
    pub webhook_cert_path: Option<String>,

    /// File of that certificate.
    #[arg(long, env = "AGENT_FORGE_WEBHOOK_CERT_NAME", value_name = "FILE")]
    pub webhook_cert_name: Option<String>,

    /// File of its key.
    #[arg(long, env = "AGENT_FORGE_WEBHOOK_CERT_KEY", value_name = "FILE")]
    pub webhook_cert_key: Option<String>,

    /// `true`: HTTP/2 for metrics and webhooks. The servers speak HTTP/1.1.
    #[arg(long, env = "AGENT_FORGE_ENABLE_HTTP2", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub enable_http2: Option<bool>,

    /// Development defaults of the predecessor's logger. RUST_LOG sets levels.
    #[arg(long, env = "AGENT_FORGE_ZAP_DEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub zap_devel: Option<bool>,

    /// Format of the predecessor's logger. Use --log-format.
    #[arg(long, env = "AGENT_FORGE_ZAP_ENCODER", value_name = "FORMAT")]
    pub zap_encoder: Option<String>,

    /// Level of the predecessor's logger. Use RUST_LOG.
    #[arg(long, env = "AGENT_FORGE_ZAP_LOG_LEVEL", value_name = "LEVEL")]
    pub zap_log_level: Option<String>,

    /// Lowest level with stack traces in the predecessor's logger.
    #[arg(long, env = "AGENT_FORGE_ZAP_STACKTRACE_LEVEL", value_name = "LEVEL")]
    pub zap_stacktrace_level: Option<String>,

    /// Time format of the predecessor's logger.
    #[arg(long, env = "AGENT_FORGE_ZAP_TIME_ENCODING", value_name = "FORMAT")]
    pub zap_time_encoding: Option<String>,
}

impl Legacy {
    /// One warning for each given flag that has no effect. It names what to do instead.
    #[must_use]
    pub fn warnings(&self) -> Vec<&'static str> {
        let mut out = Vec::new();
        let mut warn = |given: bool, text| {
            if given {
                out.push(text);
            }
        };
        warn(
            self.webhook_cert_path.is_some()
                || self.webhook_cert_name.is_some()
                || self.webhook_cert_key.is_some(),
            "--webhook-cert-*: there is no webhook",
        );
        warn(
            self.enable_http2 == Some(true),
            "--enable-http2: the servers speak HTTP/1.1",
        );
        warn(
            self.zap_log_level.is_some()
                || self.zap_devel.is_some()
                || self.zap_stacktrace_level.is_some()
                || self.zap_time_encoding.is_some(),
            "--zap-*: use RUST_LOG for levels",
        );
        warn(
            self.zap_encoder.is_some(),
            "--zap-encoder: use --log-format",
        );
        out
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = agent_forge_crds::duration::parse(text).map_err(|e| e.to_string())?;
    if parsed.is_zero() {
        Err("must be longer than zero".to_owned())
    } else {
        Ok(parsed)
    }
}

/// The interval of orphan scans, at least 10 s. A scan lists all marked VMs: more frequent scans would overload a large
/// vCenter.
fn scan_interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < Duration::from_secs(10) {
        return Err(
            "must be 10s or longer: each scan lists all marked VMs of a vCenter".to_owned(),
        );
    }
    Ok(interval)
}

/// Longest `--iso-deadline`. Other clusters on the datastore treat a partial file as abandoned when it has not changed
/// for 24 h. A transfer must end long before that.
const LONGEST_ISO_DEADLINE: Duration = Duration::from_secs(12 * 3600);
// The vSphere client cuts off an upload at `UPLOAD_LIMIT`. It must not do so before the download ends.
const _: () = assert!(LONGEST_ISO_DEADLINE.as_secs() < UPLOAD_LIMIT.as_secs());

fn iso_deadline(text: &str) -> Result<Duration, String> {
    let deadline = duration(text)?;
    if deadline > LONGEST_ISO_DEADLINE {
        return Err(
            "must be 12h or shorter: other clusters on the datastore delete a partial ISO file that is 24h old"
                .to_owned(),
        );
    }
    Ok(deadline)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::{Arg, Command as Cli, CommandFactory, Parser as _};

    use super::*;

    /// Flags of a command and of its subcommands. `--help` and `--version` are not included: clap adds them later.
    fn flags(command: &Cli) -> Vec<&Arg> {
        let own = command.get_arguments().filter(|a| a.get_long().is_some());
        let below = command.get_subcommands().flat_map(flags);
        own.chain(below).collect()
    }

    /// OLM passes an empty value where the operator serves all namespaces.
    #[test]
    fn an_empty_list_of_namespaces_bounds_no_secret_and_an_empty_list_of_theirs_bounds_all() {
        for (given, bound) in [
            (&[][..], &[][..]),
            (&["--namespaces="], &[]),
            (&["--namespaces=a,b"], &["a", "b"]),
            (&["--namespaces=", "--secret-namespaces=c"], &["c"]),
            (&["--secret-namespaces="], &[""]),
        ] {
            let args = Args::parse_from(["agent-forge"].iter().chain(given));
            assert_eq!(args.secret_bound(), bound, "{given:?}");
        }
    }

    #[test]
    fn the_installer_for_byoh_is_off_by_default_and_needs_all_namespaces() {
        for (given, installs) in [
            (&[][..], Some(false)),
            (&["--byoh-installer"], Some(true)),
            (&["--byoh-installer", "--namespaces="], Some(true)),
            (&["--namespaces=a"], Some(false)),
            (&["--byoh-installer", "--namespaces=a"], None),
        ] {
            let args = Args::parse_from(["agent-forge"].iter().chain(given));
            assert_eq!(args.installs_byoh().ok(), installs, "{given:?}");
        }
    }

    #[test]
    fn every_flag_has_an_environment_variable_of_its_own_and_stands_in_help() {
        let command = Args::command();
        let flags = flags(&command);
        let mut variables = BTreeMap::new();
        for flag in &flags {
            let name = flag.get_long().expect("a flag");
            let variable = flag.get_env();
            let variable =
                variable.unwrap_or_else(|| panic!("--{name} has no environment variable"));
            // Commands share a flag of one name.
            let owner = variables.entry(variable).or_insert(name);
            assert_eq!(*owner, name, "{variable:?} is taken");
            let hidden = [
                flag.is_hide_set(),
                flag.is_hide_env_set(),
                flag.is_hide_short_help_set(),
                flag.is_hide_long_help_set(),
            ];
            assert_eq!(hidden, [false; 4], "--{name} is hidden");
            let help = flag.get_help().map(ToString::to_string);
            assert!(help.is_some_and(|h| !h.is_empty()), "--{name} has no words");
        }
        for name in [
            "kubeconfig",
            "pod-uid",
            "zap-encoder",
            "offline",
            "namespace",
        ] {
            let known = flags.iter().any(|f| f.get_long() == Some(name));
            assert!(known, "--{name}");
        }
    }

    #[test]
    fn help_sets_the_predecessors_flags_apart() {
        let command = Args::command();
        let apart: Vec<&str> = flags(&command)
            .into_iter()
            .filter(|f| f.get_help_heading() == Some(LEGACY))
            .filter_map(Arg::get_long)
            .collect();
        assert_eq!(apart.len(), 9, "{apart:?}");
        for (name, of) in [
            ("metrics-secure", false),
            ("zap-devel", true),
            ("pod-uid", false),
        ] {
            assert_eq!(apart.contains(&name), of, "--{name}");
        }
    }

    #[test]
    fn whatever_has_no_effect_is_warned_of() {
        for flag in [
            "--webhook-cert-path=/c",
            "--webhook-cert-name=c",
            "--webhook-cert-key=k",
            "--enable-http2",
            "--zap-devel",
            "--zap-encoder=json",
            "--zap-log-level=debug",
            "--zap-stacktrace-level=error",
            "--zap-time-encoding=iso8601",
        ] {
            let args = Args::try_parse_from(["agent-forge", flag]).expect(flag);
            assert_eq!(args.legacy.warnings().len(), 1, "{flag}");
        }
    }

    #[test]
    fn the_predecessors_command_line_is_accepted() {
        let args = Args::try_parse_from([
            "agent-forge",
            "--metrics-bind-address=:8443",
            "--leader-elect",
            "--health-probe-bind-address=:8081",
            "--metrics-secure=false",
            "--metrics-cert-path=/tmp/certs",
            "--metrics-cert-name=tls.crt",
            "--metrics-cert-key=tls.key",
            "--webhook-cert-path=/tmp/certs",
            "--webhook-cert-name=tls.crt",
            "--webhook-cert-key=tls.key",
            "--enable-http2=false",
            "--kubeconfig=/tmp/k",
            "--zap-devel",
            "--zap-encoder=json",
            "--zap-log-level=debug",
            "--zap-stacktrace-level=error",
            "--zap-time-encoding=rfc3339",
        ])
        .expect("accepted");
        assert_eq!(
            args.legacy.warnings().len(),
            3,
            "{:?}",
            args.legacy.warnings()
        );
    }

    #[test]
    fn defaults_hold_and_nonsense_is_refused() {
        let args = Args::try_parse_from(["agent-forge"]).expect("defaults");
        assert_eq!(args.agent_discovery_timeout, Duration::from_secs(1800));
        assert_eq!(args.orphan_scan_interval, Duration::from_secs(600));
        assert_eq!(args.scaling.max_concurrent_vcenter_tasks, 8);
        assert!(!args.iso_allow_local_source);
        assert!(!args.lease.leader_elect);
        let timing = args.lease.timing().expect("the defaults fit together");
        assert_eq!(timing.call_bound(), Duration::from_secs(30));
        let chaos = [
            "agent-forge",
            "--chaos-kill-every=1s",
            "--i-understand-this-kills-actors",
        ];
        let args = Args::try_parse_from(chaos).expect("agreed");
        assert_eq!(args.chaos.kill_every(), Some(Duration::from_secs(1)));
        // The environment variable is set to `false`.
        let mut chaos = args.chaos;
        chaos.i_understand_this_kills_actors = false;
        assert_eq!(chaos.kill_every(), None);
        for bad in [
            "--chaos-kill-every=1s",
            "--agent-discovery-timeout=soon",
            "--agent-discovery-timeout=0s",
            "--max-concurrent-vcenter-tasks=0",
            "--max-concurrent-creates=0",
            "--max-concurrent-creates-per-datastore=0",
            "--min-free-datastore-gib=-1",
            "--orphan-scan-interval=9s",
            "--orphan-scan-interval=never",
            "--iso-deadline=0s",
            "--iso-deadline=12h1s",
            "--iso-deadline=24h",
            "--allowed-vcenters=https://vc.example",
            "--allowed-vcenters=vc.example,*",
        ] {
            assert!(Args::try_parse_from(["agent-forge", bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_boolean_flag_leaves_the_next_word_alone() {
        for flag in [
            "--leader-elect",
            "--dry-run",
            "--iso-allow-local-source",
            "--vsphere-allow-http",
            "--vsphere-allow-local-server",
            "--byoh-installer",
            "--metrics-secure",
            "--enable-http2",
            "--zap-devel",
        ] {
            let args = Args::try_parse_from(["agent-forge", flag, "doctor"]);
            let args = args.unwrap_or_else(|e| panic!("{flag}: {e}"));
            assert!(matches!(args.command, Some(Command::Doctor(_))), "{flag}");
            let off = format!("{flag}=false");
            assert!(Args::try_parse_from(["agent-forge", &off]).is_ok(), "{off}");
        }
    }

    #[test]
    fn the_cluster_may_be_named_after_the_command() {
        let asked = |line: &str| {
            let words = line.split(' ');
            let args = Args::try_parse_from(words).unwrap_or_else(|e| panic!("{line}: {e}"));
            let kubeconfig = args
                .target
                .kubeconfig
                .map(|path| path.display().to_string());
            (kubeconfig, args.namespaces)
        };
        for line in [
            "agent-forge --kubeconfig /k --namespaces a,b doctor",
            "agent-forge doctor --kubeconfig /k --namespaces a,b",
            "agent-forge explain va/x --namespaces=a,b -n a --kubeconfig=/k",
        ] {
            let wanted = (Some("/k".to_owned()), vec!["a".to_owned(), "b".to_owned()]);
            assert_eq!(asked(line), wanted, "{line}");
        }
    }

    #[test]
    fn no_iso_takes_longer_than_others_leave_its_partial_file_alone() {
        let longest = ["agent-forge", "--iso-deadline=12h"];
        let args = Args::try_parse_from(longest).expect("12 h");
        assert_eq!(args.iso_deadline, Duration::from_secs(12 * 3600));
        let refused = Args::try_parse_from(["agent-forge", "--iso-deadline=13h"]);
        let said = refused.expect_err("13 h").to_string();
        assert!(said.contains("12h or shorter"), "{said}");
    }
}
