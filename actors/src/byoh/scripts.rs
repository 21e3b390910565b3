//! The built-in scripts, and the judge of other ones.

/// What the scripts are for.
pub struct Request {
    /// Kind of the operating system.
    pub os_name: String,
    /// The operating system with its version.
    pub os_image: String,
    /// Architecture as Go names it.
    pub architecture: String,
    /// Version of Kubernetes.
    pub kubernetes_version: String,
    /// Image with the packages.
    pub bundle: agent_forge_crds::installer::Bundle,
}

/// Both scripts.
pub struct Scripts {
    /// Installs.
    pub install: String,
    /// Takes everything back.
    pub uninstall: String,
}

/// There are no scripts for that.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(String);

/// A script that a host could not carry out.
#[derive(Debug)]
pub struct RefusedTemplate {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
}

/// The scripts for that host.
///
/// # Errors
/// The host is not supported.
pub fn render(request: &Request) -> Result<Scripts, Unsupported> {
    if request.os_name != "linux" || !request.os_image.starts_with("Ubuntu ") {
        return Err(Unsupported(format!(
            "{} is not supported",
            request.os_image
        )));
    }
    Ok(Scripts {
        install: format!(
            "#!/bin/sh\n# {}\necho {{{{.BundleDownloadPath}}}}\n",
            request.kubernetes_version
        ),
        uninstall: "#!/bin/sh\n".to_owned(),
    })
}

/// Judges a script of somebody else.
///
/// # Errors
/// The first action that is refused.
pub fn judge_template(text: &str) -> Result<(), RefusedTemplate> {
    for (at, line) in text.lines().enumerate() {
        if line.replace("{{.BundleDownloadPath}}", "").contains("{{") {
            return Err(RefusedTemplate {
                line: at + 1,
                what: "an action".to_owned(),
            });
        }
    }
    Ok(())
}
