//! Which Secret holds a pool's credentials, or its kubeconfig, and whether that Secret allows the pool.

use agent_forge_crds::{
    conditions::Reason,
    names::{ALLOW_POOLS_FROM_ANNOTATION, CREDENTIALS_FINALIZER_PREFIX},
    pool::{CredentialsSecretRef, HeldSecret, KubeconfigSecretRef, VsphereAgentPool},
};
use kube::ResourceExt;

use crate::domain::{
    failure::{ErrorSource, ReconcileError},
    grants,
    names::ObjectKey,
};

/// The field that names the Secret with credentials.
pub const CREDENTIALS: &str = "spec.vsphere.credentialsSecretRef";
/// The field that names the Secret with the kubeconfig of the hosted cluster.
pub const KUBECONFIG: &str = "spec.nodeCheck.kubeconfigSecretRef";

/// The Secret with the pool's credentials.
///
/// # Errors
/// `SecretNamespaceRefused` if it is in another namespace that the operator's flag excludes. [`admit`] checks at the read
/// whether the Secret itself allows the pool.
pub fn secret(
    pool: &VsphereAgentPool,
    allowed_namespaces: &[String],
) -> Result<ObjectKey, ReconcileError> {
    let own = pool.namespace().unwrap_or_default();
    secret_at(
        &pool.spec.vsphere.credentials_secret_ref,
        &own,
        allowed_namespaces,
    )
}

/// Whether pools of that namespace may use this Secret, by its annotation `allow-pools-from`. `field` names it. A missing Secret allows no
/// pool of another namespace. So the answer does not show whether it exists.
///
/// # Errors
/// `SecretNamespaceRefused` names the annotation.
pub fn admit(
    field: &str,
    secret: &ObjectKey,
    pools_from: Option<&str>,
    namespace: &str,
) -> Result<(), ReconcileError> {
    let own = secret.namespace == namespace;
    if own || grants::allows(pools_from, namespace) {
        return Ok(());
    }
    Err(ReconcileError::blocked(
        ErrorSource::Vsphere,
        Reason::SecretNamespaceRefused,
        format!(
            "{field}: Secret {secret} does not exist, or does not admit pools of namespace \
             {namespace:?}; annotate it with {ALLOW_POOLS_FROM_ANNOTATION}: {namespace}, or put a Secret into the pool's \
             namespace"
        ),
    ))
}

/// The Secret that a reference in namespace `own` means.
///
/// # Errors
/// As [`secret`].
pub fn secret_at(
    reference: &CredentialsSecretRef,
    own: &str,
    allowed_namespaces: &[String],
) -> Result<ObjectKey, ReconcileError> {
    let named = (reference.name.as_str(), reference.namespace.as_deref());
    secret_named(CREDENTIALS, named, own, allowed_namespaces)
}

/// The Secret with the kubeconfig that a reference in namespace `own` means.
///
/// # Errors
/// As [`secret`].
pub fn kubeconfig(
    reference: &KubeconfigSecretRef,
    own: &str,
    allowed_namespaces: &[String],
) -> Result<ObjectKey, ReconcileError> {
    let named = (reference.name.as_str(), reference.namespace.as_deref());
    secret_named(KUBECONFIG, named, own, allowed_namespaces)
}

fn secret_named(
    field: &str,
    (name, namespace): (&str, Option<&str>),
    own: &str,
    allowed_namespaces: &[String],
) -> Result<ObjectKey, ReconcileError> {
    let namespace = namespace.filter(|n| !n.is_empty()).unwrap_or(own);
    let bounded = !allowed_namespaces.is_empty();
    if namespace != own && bounded && !allowed_namespaces.iter().any(|n| n == namespace) {
        return Err(ReconcileError::blocked(
            ErrorSource::Vsphere,
            Reason::SecretNamespaceRefused,
            format!(
                "{field}.namespace: {namespace:?} is neither the pool's own namespace nor among \
                 --secret-namespaces of the operator; put the Secret into the pool's namespace"
            ),
        ));
    }
    Ok(ObjectKey::new(namespace, name))
}

/// Name of the pool's finalizer on Secrets.
#[must_use]
pub fn finalizer(pool: &VsphereAgentPool) -> String {
    format!(
        "{CREDENTIALS_FINALIZER_PREFIX}{}",
        pool.uid().unwrap_or_default()
    )
}

/// The Secrets on record.
#[must_use]
pub fn on_record(pool: &VsphereAgentPool) -> &[HeldSecret] {
    pool.status
        .as_ref()
        .map(|s| s.held_secrets.as_slice())
        .unwrap_or_default()
}

/// Whether that Secret is confirmed as held for the pool.
#[must_use]
pub fn holds(pool: &VsphereAgentPool, secret: &ObjectKey) -> bool {
    on_record(pool).iter().any(|h| h.held && key(h) == *secret)
}

/// The Secret of one entry on record.
#[must_use]
pub fn key(held: &HeldSecret) -> ObjectKey {
    ObjectKey::new(&held.namespace, &held.name)
}
