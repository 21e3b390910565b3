//! A pool's vCenter: name, connection, certificate, login, every object that the pool names, and the user's rights on it.

use std::time::Duration;

use agent_forge_actors::{
    domain::{
        failure::ReconcileError,
        names::{MoRef, ObjectKey},
    },
    placement::{choice::Fitting, request},
    ports::{
        cluster::View as _,
        effect::{Effect, EffectKind, Subject},
        vcenter::{Credentials, PlaceCandidates, Trust, VCenter, VcErrorKind},
    },
    sessions::{credentials::BadCredentials, secret_ref},
};
use agent_forge_crds::{VsphereAgentPool, conditions::Reason, names::ALLOW_POOLS_FROM_ANNOTATION};
use kube::ResourceExt as _;

use super::Check;
use crate::{
    args::Args,
    commands::{
        privileges::{Feature, On, ROLE},
        sight::Sight,
        vcenters::{Found, Vcenters},
    },
};

/// Limit of a connection attempt.
const CONNECT: Duration = Duration::from_secs(10);
/// Free space below which a datastore is told: room for so many more VMs.
const ROOM: u64 = 2;
const PRIVILEGES: &str = "docs/reference/vsphere.md#privileges";

/// Checks vCenters.
pub struct Doctors<'a> {
    vcenters: Vcenters,
    bound: &'a [String],
}

impl<'a> Doctors<'a> {
    /// Nothing is connected yet.
    pub fn new(args: &'a Args, sight: &Sight) -> Self {
        Self {
            vcenters: Vcenters::new(args, &sight.client, sight.caches.pools()),
            bound: args.secret_bound(),
        }
    }

    /// Logs out.
    pub async fn close(self) {
        self.vcenters.close().await;
    }

    /// All checks of one pool. The first failure ends them: the later ones need what it lacks.
    pub async fn checks(&self, args: &Args, about: &str, pool: &VsphereAgentPool) -> Vec<Check> {
        let mut all = Vec::new();
        if let Err(failed) = self.run(args, about, pool, &mut all).await {
            all.push(*failed);
        }
        all
    }

    async fn run(
        &self,
        args: &Args,
        about: &str,
        pool: &VsphereAgentPool,
        all: &mut Vec<Check>,
    ) -> Result<(), Box<Check>> {
        let because =
            |check, e: ReconcileError| Box::new(Check::because(check, about, &e.reason, e.message));
        let key = secret_ref::secret(pool, self.bound).map_err(|e| because("secret", e))?;
        let found = self.credentials(&key, pool, about).await?;
        let credentials = &found.credentials;
        all.push(Check::green(
            "secret",
            about,
            format!("Secret {key} can be used"),
        ));
        if credentials.trust == Trust::Insecure {
            let says = format!("Secret {key}: the certificate of vCenter is not checked");
            let todo = "Put the CA into caBundle, or the SHA-256 digest into thumbprint, and remove insecure.";
            let page = "docs/how-to/credentials-and-privileges.md#create-the-secret";
            all.push(Check::yellow("certificate", about, says).todo(todo, page));
        }
        if !args.server_rule().allowed.is_empty() {
            all.push(Check::green(
                "allowed",
                about,
                "the server is among --allowed-vcenters",
            ));
        }
        all.extend(reach(credentials, about).await?);
        let session = self.vcenters.connect(&found).await;
        let session = session.map_err(|e| because("login", e))?;
        all.push(Check::green(
            "login",
            about,
            format!("{} accepts user {}", session.server(), credentials.username),
        ));
        let place = request::place_request(pool).map_err(|e| because("objects", e))?;
        let places = session.place_candidates(&place).await;
        let places = places.map_err(|e| because("objects", e.into()))?;
        all.push(Check::green(
            "objects",
            about,
            "each object in spec.vsphere exists and is visible",
        ));
        match Fitting::of(&places) {
            Ok(_) => all.push(Check::green(
                "place",
                about,
                "a usable host has network, datastore and ISO datastore",
            )),
            Err(none) => all.push(*because("place", none.error(&place).into())),
        }
        all.extend(room(
            about,
            &places,
            place.bytes,
            args.scaling.min_free_bytes(),
        ));
        self.rights(about, (pool, credentials), session.as_ref(), &places, all)
            .await;
        Ok(())
    }

    async fn credentials(
        &self,
        key: &ObjectKey,
        pool: &VsphereAgentPool,
        about: &str,
    ) -> Result<Found, Box<Check>> {
        let namespace = pool.namespace().unwrap_or_default();
        self.vcenters
            .credentials(key, &namespace)
            .await
            .map_err(|e| {
                let (reason, said) = match e.downcast_ref::<BadCredentials>() {
                    // Its causes say the same once more.
                    Some(bad) => (bad.reason(), format!("Secret {key}: {bad}")),
                    None if e.to_string().contains(ALLOW_POOLS_FROM_ANNOTATION) => {
                        (Reason::SecretNamespaceRefused, e.to_string())
                    }
                    None => (Reason::SecretNotFound, format!("{e:#}")),
                };
                Box::new(Check::because("secret", about, &reason, said))
            })
    }

    /// Each privilege of the role, on the object where it is needed.
    async fn rights(
        &self,
        about: &str,
        (pool, credentials): (&VsphereAgentPool, &Credentials),
        session: &dyn VCenter,
        found: &PlaceCandidates,
        all: &mut Vec<Check>,
    ) {
        let eject = pool
            .spec
            .iso
            .as_ref()
            .is_some_and(|iso| iso.eject_after_install());
        let recycles = pool.spec.release.as_ref().is_some_and(|r| r.recycles());
        let used = |feature: Feature| match feature {
            // A tag has rights of its own, which this question does not cover. The operator takes no pictures.
            Feature::Tags | Feature::TakeOver | Feature::Console => false,
            Feature::Recycle => recycles,
            Feature::Eject => eject,
        };
        let mut missing = Vec::new();
        for (on, object, name) in objects(session, pool, found).await {
            let ids: Vec<&str> = ROLE
                .iter()
                .filter(|p| p.on == on && p.feature.is_none_or(used))
                .map(|p| p.id)
                .collect();
            match self.vcenters.lacking(credentials, &object, &ids).await {
                Ok(Some(lacking)) => missing.extend(
                    lacking
                        .into_iter()
                        .map(|id| format!("{id} on {} {name:?}", on.words())),
                ),
                Ok(None) => {
                    let says = "vCenter does not say which privileges this user has";
                    all.push(Check::yellow("privileges", about, says).todo(
                        "Compare the user's role with agent-forge privileges.",
                        PRIVILEGES,
                    ));
                    return;
                }
                Err(e) => {
                    all.push(Check::yellow("privileges", about, e.to_string()).todo(
                        "Compare the user's role with agent-forge privileges.",
                        PRIVILEGES,
                    ));
                    return;
                }
            }
        }
        missing.sort();
        missing.dedup();
        all.push(if missing.is_empty() {
            Check::green(
                "privileges",
                about,
                format!("user {} has the whole role", credentials.username),
            )
        } else {
            Check::because(
                "privileges",
                about,
                &Reason::NoPermission,
                missing.join("; "),
            )
        });
    }
}

/// Name and port of the server.
async fn reach(credentials: &Credentials, about: &str) -> Result<Vec<Check>, Box<Check>> {
    let host = credentials
        .server
        .host_str()
        .unwrap_or_default()
        .trim_matches(['[', ']']);
    let port = credentials.server.port_or_known_default().unwrap_or(443);
    let failed = |check, message| {
        Box::new(Check::because(
            check,
            about,
            &Reason::VcenterUnreachable,
            message,
        ))
    };
    let addresses: Vec<_> = match tokio::net::lookup_host((host, port)).await {
        Ok(found) => found.collect(),
        Err(e) => {
            return Err(failed(
                "dns",
                format!("the name {host} cannot be resolved from here: {e}"),
            ));
        }
    };
    let mut all = vec![Check::green(
        "dns",
        about,
        format!("the name {host} leads to an address"),
    )];
    if std::env::var_os("HTTPS_PROXY").is_some() {
        all.push(Check::green("tcp", about, "a proxy makes the connection"));
        return Ok(all);
    }
    let connected = tokio::time::timeout(
        CONNECT,
        tokio::net::TcpStream::connect(addresses.as_slice()),
    )
    .await;
    match connected {
        Ok(Ok(_)) => all.push(Check::green(
            "tcp",
            about,
            format!("{host}:{port} accepts connections"),
        )),
        Ok(Err(e)) => {
            return Err(failed(
                "tcp",
                format!("{host}:{port} refuses connections from here: {e}"),
            ));
        }
        Err(_) => {
            return Err(failed(
                "tcp",
                format!("{host}:{port} does not answer from here within 10 s"),
            ));
        }
    }
    Ok(all)
}

/// Whether the datastores have room for more VMs, beside the `floor` bytes that stay free.
fn room(about: &str, found: &PlaceCandidates, bytes: u64, floor: u64) -> Option<Check> {
    let usable = found
        .datastores
        .iter()
        .filter(|d| d.accessible && !d.in_maintenance);
    let best = usable.max_by_key(|d| d.free)?;
    let gib = |bytes: u64| bytes >> 30;
    let says = format!(
        "datastore {:?} has {} GiB free; a VM needs {} GiB, and {} GiB stay free (--min-free-datastore-gib)",
        best.name,
        gib(best.free),
        gib(bytes),
        gib(floor)
    );
    let usable = best.free.saturating_sub(floor);
    Some(if usable < bytes {
        Check::because("space", about, &Reason::NoDiskSpace, says)
    } else if usable < bytes.saturating_mul(ROOM) {
        Check::yellow("space", about, says).todo(
            "Free space before the next VMs.",
            "docs/reference/reasons.md#specvsphere-and-resources",
        )
    } else {
        Check::green("space", about, says)
    })
}

/// The objects on which the role is needed, each with its name.
async fn objects(
    session: &dyn VCenter,
    pool: &VsphereAgentPool,
    found: &PlaceCandidates,
) -> Vec<(On, MoRef, String)> {
    let vsphere = &pool.spec.vsphere;
    let mut all = vec![
        (
            On::ResourcePool,
            found.compute.resource_pool.clone(),
            vsphere.resource_pool.clone(),
        ),
        (On::Network, found.network.clone(), vsphere.network.clone()),
    ];
    let stores = |on, list: &[agent_forge_actors::ports::vcenter::Datastore]| -> Vec<_> {
        list.iter()
            .map(|d| (on, d.moref.clone(), d.name.clone()))
            .collect()
    };
    all.extend(stores(On::Datastores, &found.datastores));
    all.extend(stores(On::IsoDatastore, &found.iso_datastores));
    // The gate refuses to create a folder, so this only looks.
    let look = async |path: &str| {
        let effect = Effect::new(
            EffectKind::CreateFolder,
            Subject::Server(session.server().to_owned()),
        );
        session
            .ensure_folder(&effect, &found.datacenter, path)
            .await
    };
    let path = request::folder(pool);
    let parent = path
        .rsplit_once('/')
        .map_or("", |(parent, _)| parent)
        .to_owned();
    match look(&path).await {
        Ok(folder) => all.push((On::Folder, folder, path)),
        Err(e) if matches!(e.kind, VcErrorKind::Held(_)) => {
            if let Ok(above) = look(&parent).await {
                all.push((On::FolderParent, above.clone(), parent.clone()));
                all.push((On::Folder, above, parent));
            }
        }
        Err(_) => {}
    }
    all
}
