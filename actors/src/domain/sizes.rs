//! The size classes of a pool, and which of them an AgentMachine gets. Pure.
//!
//! A class is a pool with another template, more labels and a buffer of its own ([`VsphereAgentPool::of_class`]). So each rule
//! about a host asks the pool as its class sees it, and knows nothing of classes.

use std::sync::Arc;

use agent_forge_crds::{
    agent::VmStatus,
    external::agent_machine::AgentMachine,
    pool::{TemplateSpec, VsphereAgentPool},
};

use super::{belonging, selector};

/// A pool as each of its classes sees it.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    default: Arc<VsphereAgentPool>,
    classes: Vec<(String, Arc<VsphereAgentPool>)>,
}

impl Sizes {
    /// Reads the classes of that pool.
    #[must_use]
    pub fn of(pool: &Arc<VsphereAgentPool>) -> Self {
        let names = pool.spec.classes.iter().map(|class| class.name.clone());
        let classes = names.filter_map(|name| {
            let seen = Arc::new(pool.of_class(&name)?);
            Some((name, seen))
        });
        Self {
            default: pool.clone(),
            classes: classes.collect(),
        }
    }

    /// The classes. The first one, without a name, is that of `spec.template`.
    pub fn names(&self) -> impl Iterator<Item = Option<&str>> {
        let named = self.classes.iter().map(|(name, _)| Some(name.as_str()));
        std::iter::once(None).chain(named)
    }

    /// The pool as that class sees it. A class that the pool does not have counts as that of `spec.template`.
    #[must_use]
    pub fn pool(&self, class: Option<&str>) -> &Arc<VsphereAgentPool> {
        let mut classes = self.classes.iter();
        let found = class.and_then(|class| classes.find(|(name, _)| name == class));
        found.map_or(&self.default, |(_, pool)| pool)
    }

    /// The class of hosts for that AgentMachine.
    ///
    /// # Errors
    /// No class fits its selector: what the closest one lacks, as a sentence.
    pub fn of_machine(&self, am: &AgentMachine) -> Result<Option<&str>, String> {
        let asked = am.spec.agent_label_selector.as_ref();
        if self.classes.is_empty() {
            let labels = belonging::base_labels(&self.default);
            let possible = selector::satisfiable(asked, &labels);
            return possible.map(|()| None).map_err(|why| why.to_string());
        }
        let lacks = |class| selector::unmet(asked, &belonging::base_labels(self.pool(class)));
        let all = self.names().map(|class| (lacks(class), class));
        let closest = all.min_by_key(|(lacks, _)| lacks.len());
        match closest {
            Some((lacks, class)) if !lacks.is_empty() => Err(format!(
                "no class of the pool fits: {} does not give its Agents {}",
                class.map_or("spec.template".to_owned(), |class| format!(
                    "class {class:?}"
                )),
                lacks.join(" and "),
            )),
            Some((_, class)) => Ok(class),
            None => Ok(None),
        }
    }
}

/// The pool as the class of that name sees it. `None`: that of `spec.template`. If the pool has no such class any more, a VM that was
/// made stays as it was made. `made`: what is on record of it.
#[must_use]
pub fn seen_by(
    pool: Arc<VsphereAgentPool>,
    class: Option<&str>,
    made: Option<&VmStatus>,
) -> Arc<VsphereAgentPool> {
    let Some(class) = class else {
        return pool;
    };
    if let Some(seen) = pool.of_class(class) {
        return Arc::new(seen);
    }
    match made.and_then(|vm| vm.template.as_ref()) {
        Some(made) => {
            let mut seen = VsphereAgentPool::clone(&pool);
            seen.spec.template = TemplateSpec {
                name_prefix: None,
                num_cpus: made.num_cpus,
                memory_mib: made.memory_mib,
                disk_gib: made.disk_gib,
            };
            Arc::new(seen)
        }
        None => pool,
    }
}

/// Why no VM is made for a host of that class, as a sentence: the pool does not have it any more.
#[must_use]
pub fn gone(pool: &VsphereAgentPool, class: Option<&str>) -> Option<String> {
    let class = class?;
    let known = pool.spec.classes.iter().any(|of| of.name == class);
    (!known).then(|| {
        format!(
            "the host is of class {class:?}, which spec.classes of the pool does not have any more: no VM is made for it. Add the class \
             again, or delete this VsphereAgent"
        )
    })
}

#[cfg(test)]
mod tests {
    use agent_forge_crds::{
        agent::VmTemplate,
        pool::{SizeClass, TemplateSpec},
    };
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

    use super::*;
    use crate::testing::{agent_machine, pool, with};

    fn sized() -> Arc<VsphereAgentPool> {
        let class = |name: &str, cpus| SizeClass {
            name: name.to_owned(),
            template: TemplateSpec {
                num_cpus: Some(cpus),
                ..TemplateSpec::default()
            },
            labels: [("size".to_owned(), name.to_owned())].into(),
            ..SizeClass::default()
        };
        Arc::new(with(pool("w"), |p| {
            p.spec.classes = vec![class("large", 16), class("small", 2)];
        }))
    }

    fn asking(labels: &[(&str, &str)]) -> AgentMachine {
        let labels = labels.iter();
        let labels = labels.map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        with(agent_machine("a"), |am| {
            am.spec.agent_label_selector = Some(LabelSelector {
                match_labels: Some(labels.collect()),
                match_expressions: None,
            });
        })
    }

    #[test]
    fn the_first_class_that_fits_is_chosen_and_the_template_comes_first() {
        let sizes = Sizes::of(&sized());
        let class = |labels: &[(&str, &str)]| {
            sizes
                .of_machine(&asking(labels))
                .map(|c| c.map(str::to_owned))
        };
        assert_eq!(class(&[]), Ok(None));
        assert_eq!(class(&[("size", "small")]), Ok(Some("small".to_owned())));
        assert_eq!(class(&[("size", "large")]), Ok(Some("large".to_owned())));
        // The labels of the service are not a pool's to give, and the pin is set later.
        let known = ("infraenvs.agent-install.openshift.io", "e");
        let pin = ("agent-forge.containeroo.ch/agent-machine", "a");
        assert_eq!(
            class(&[("size", "small"), known, pin]),
            Ok(Some("small".to_owned()))
        );
        assert_eq!(sizes.pool(Some("large")).spec.template.num_cpus(), 16);
        assert_eq!(sizes.pool(Some("gone")).spec, sized().spec);
    }

    #[test]
    fn a_machine_that_no_class_fits_is_told_what_is_missing() {
        let sizes = Sizes::of(&sized());
        let refused = |labels: &[(&str, &str)]| sizes.of_machine(&asking(labels)).unwrap_err();
        assert_eq!(
            refused(&[("size", "huge")]),
            "no class of the pool fits: spec.template does not give its Agents size=huge"
        );
        assert_eq!(
            refused(&[("size", "small"), ("gpu", "yes")]),
            "no class of the pool fits: class \"small\" does not give its Agents gpu=yes"
        );
        // Without classes the operator gives an Agent what the selector asks for.
        let alone = Sizes::of(&Arc::new(pool("w")));
        assert_eq!(alone.of_machine(&asking(&[("size", "huge")])), Ok(None));
    }

    #[test]
    fn a_host_of_a_class_that_is_gone_stays_as_it_was_made_and_none_is_made() {
        let cpus =
            |class, made: Option<&VmStatus>| seen_by(sized(), class, made).spec.template.num_cpus();
        let made = VmStatus {
            template: Some(VmTemplate {
                num_cpus: Some(7),
                ..VmTemplate::default()
            }),
            ..VmStatus::default()
        };
        assert_eq!(cpus(None, Some(&made)), 4);
        assert_eq!(cpus(Some("large"), Some(&made)), 16);
        assert_eq!(cpus(Some("gone"), Some(&made)), 7);
        let said = |class| gone(&sized(), class);
        assert_eq!([said(None), said(Some("large"))], [None, None]);
        let why = said(Some("gone")).unwrap_or_default();
        assert!(
            why.contains("\"gone\"") && why.contains("no VM is made"),
            "{why}"
        );
    }
}
