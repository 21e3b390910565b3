//! kube-apiserver, with real authentication, RBAC, admission, validation and audit.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::{
    audit::AuditLog,
    certificates::{Authority, signing_keys, write_private},
    kubeconfig::{Credential, Endpoint},
    ports,
    process::Process,
};
use crate::tools;

/// Logs the writes and reads of all users, without bodies. The server's own bookkeeping is left out.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ['system:apiserver']
- level: None
  nonResourceURLs: ['/readyz*', '/livez*', '/healthz*', '/openapi*', '/version']
- level: Metadata
";

/// A running kube-apiserver.
#[derive(Debug)]
pub struct ApiServer {
    /// The program.
    pub process: Process,
    endpoint: Endpoint,
    admin: Credential,
    controller_manager: Credential,
    audit: PathBuf,
    files: Files,
}

#[derive(Clone, Debug)]
struct Files {
    dir: PathBuf,
}

impl Files {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

impl ApiServer {
    /// Starts kube-apiserver on the etcd at `etcd`, with its keys and logs in `dir`.
    ///
    /// # Errors
    /// It cannot be built or does not start; the error has the end of its log.
    pub async fn start(dir: &Path, etcd: &str) -> Result<Self> {
        let program = tokio::task::spawn_blocking(tools::kube_apiserver)
            .await
            .context("find kube-apiserver")??;
        let files = Files {
            dir: dir.join("kube-apiserver"),
        };
        fs::create_dir_all(&files.dir)
            .with_context(|| format!("create {}", files.dir.display()))?;
        let authority = Authority::new("lab")?;
        let serving = authority.server("kube-apiserver")?;
        write_private(&files.path("ca.crt"), authority.certificate())?;
        write_private(&files.path("tls.crt"), &serving.certificate)?;
        write_private(&files.path("tls.key"), &serving.key)?;
        let (private, public) = signing_keys()?;
        write_private(&files.path("tokens.key"), &private)?;
        write_private(&files.path("tokens.pub"), &public)?;
        write_private(&files.path("audit-policy.yaml"), AUDIT_POLICY)?;
        // RBAC allows this group everything. Only the lab itself uses it, never the operator.
        let masters = |user| {
            anyhow::Ok(Credential::Certificate(
                authority.client(user, "system:masters")?,
            ))
        };
        let (admin, controller_manager) = (
            masters("lab-admin")?,
            masters("system:kube-controller-manager")?,
        );
        let (process, url) = ports::with_fresh_ports(|| {
            Self::start_once(&program, dir, &files, etcd, authority.certificate())
        })
        .await?;
        Ok(Self {
            process,
            endpoint: Endpoint {
                url,
                authority: authority.certificate().to_owned(),
            },
            admin,
            controller_manager,
            audit: files.path("audit.log"),
            files,
        })
    }

    async fn start_once(
        program: &Path,
        dir: &Path,
        files: &Files,
        etcd: &str,
        authority: &str,
    ) -> Result<(Process, String)> {
        let [port] = ports::free()?;
        let url = format!("https://127.0.0.1:{port}");
        let mut command = Command::new(program);
        // With the default, a small heap is collected all the time, which takes more processor time than all other
        // work. Labs of several tests run side by side, so there is a memory limit.
        command.env("GOGC", "400").env("GOMEMLIMIT", "1GiB");
        let mut flag = |name: &str, value: &str| {
            command.arg(format!("--{name}={value}"));
        };
        flag("etcd-servers", etcd);
        flag("bind-address", "127.0.0.1");
        flag("advertise-address", "127.0.0.1");
        flag("secure-port", &port.to_string());
        // There are no nodes and no service network.
        flag("endpoint-reconciler-type", "none");
        flag("service-cluster-ip-range", "10.0.0.0/24");
        // PodSecurity must refuse privileged pods, not this switch.
        flag("allow-privileged", "true");
        flag("authorization-mode", "RBAC");
        // As in OpenShift: to set blockOwnerDeletion, a user needs a right on the owner's finalizers.
        flag(
            "enable-admission-plugins",
            "OwnerReferencesPermissionEnforcement",
        );
        flag("anonymous-auth", "true");
        flag("service-account-issuer", "https://kubernetes.default.svc");
        flag("audit-log-format", "json");
        // An entry is written before the answer is sent. So a count after an answer misses nothing.
        flag("audit-log-mode", "blocking-strict");
        for (name, file) in [
            ("cert-dir", "generated"),
            ("tls-cert-file", "tls.crt"),
            ("tls-private-key-file", "tls.key"),
            ("client-ca-file", "ca.crt"),
            ("service-account-key-file", "tokens.pub"),
            ("service-account-signing-key-file", "tokens.key"),
            ("audit-policy-file", "audit-policy.yaml"),
            ("audit-log-path", "audit.log"),
        ] {
            flag(name, &files.path(file).to_string_lossy());
        }
        let (process, _) = Process::spawn(
            "kube-apiserver",
            command,
            &dir.join("kube-apiserver.log"),
            false,
        )?;
        let authority = reqwest::Certificate::from_pem(authority.as_bytes())
            .context("read the lab's authority")?;
        let http = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([authority])
            .build()
            .context("make an HTTPS client")?;
        let readyz = format!("{url}/readyz");
        process.until_answers(&http, &readyz).await?;
        Ok((process, url))
    }

    /// Its address and its CA.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The lab's own user `lab-admin`, with all rights.
    pub fn admin(&self) -> &Credential {
        &self.admin
    }

    /// The controller manager's user.
    pub(super) fn controller_manager(&self) -> &Credential {
        &self.controller_manager
    }

    /// The private key file that signs service account tokens.
    pub(super) fn token_key(&self) -> PathBuf {
        self.files.path("tokens.key")
    }

    /// All requests to it.
    pub fn audit(&self) -> AuditLog {
        AuditLog::new(self.audit.clone())
    }
}
