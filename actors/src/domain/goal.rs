//! What the pool of a VsphereAgent asks of its VM: for whom it is, and which life it begins. Pure.
//!
//! The goal stands in the spec. The predecessor, and releases before the goal, said it by labels, annotations and status. Three
//! annotations are still written in the same patch, as copies for such a release: `agent-machine-uid`, `machine-name` and
//! `machine-uid`. So a difference between a goal and its copies proves that another release, or a person, has written since: then
//! the annotations count.

use agent_forge_crds::{
    agent::{Goal, MAX_BEFORE, NamedUid, NextLife, PoolKey, VsphereAgent},
    names::{
        AGENT_MACHINE_LABEL, AGENT_MACHINE_UID_ANNOTATION, CREATED_FOR_BUFFER, CREATED_FOR_LABEL,
        MACHINE_NAME_ANNOTATION, MACHINE_UID_ANNOTATION, OFFERED_TO_ANNOTATION, RECYCLE_ANNOTATION,
    },
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::{grants, names::ObjectKey};

/// A name with the uid that was recorded for it, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Name.
    pub name: String,
    /// uid; `None` on records of the predecessor.
    pub uid: Option<String>,
}

impl Recorded {
    /// Whether this record means the object of that name and uid.
    #[must_use]
    pub fn is(&self, name: &str, uid: &str) -> bool {
        match &self.uid {
            Some(recorded) => recorded == uid,
            None => self.name == name,
        }
    }

    /// Whether this record means the object with this metadata.
    #[must_use]
    pub fn is_object(&self, metadata: &ObjectMeta) -> bool {
        let name = metadata.name.as_deref().unwrap_or_default();
        self.is(name, metadata.uid.as_deref().unwrap_or_default())
    }
}

impl From<&NamedUid> for Recorded {
    fn from(named: &NamedUid) -> Self {
        Self {
            name: named.name.clone(),
            uid: Some(named.uid.clone()).filter(|uid| !uid.is_empty()),
        }
    }
}

/// As read of a VsphereAgent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The AgentMachine that the host is for.
    pub agent_machine: Option<Recorded>,
    /// The Machine behind it.
    pub machine: Option<Recorded>,
    /// The life that the VM is to begin. It has no meaning while an AgentMachine has the host.
    pub life: Option<NextLife>,
    /// uids of the AgentMachines that the host was for before. Of one that the predecessor recorded, the name.
    pub before: Vec<String>,
    /// The pool of another namespace that uses the host.
    pub user: Option<PoolKey>,
}

impl Asked {
    /// The goal in which the host is for nobody any more. `life`: the one that its VM begins then.
    #[must_use]
    pub fn for_buffer(&self, life: Option<NextLife>) -> Goal {
        Goal {
            life,
            before: self.before_and_present(),
            pool: self.user.clone(),
            ..Goal::default()
        }
    }

    /// The goal in which the host is for that AgentMachine.
    #[must_use]
    pub fn for_machine(&self, agent_machine: NamedUid, machine: Option<NamedUid>) -> Goal {
        let mut before = self.before_and_present();
        before.retain(|uid| *uid != agent_machine.uid);
        Goal {
            agent_machine: Some(agent_machine),
            machine,
            life: self.life,
            before,
            pool: self.user.clone(),
        }
    }

    /// The earlier AgentMachines, once the host is not for the present one any more.
    fn before_and_present(&self) -> Vec<String> {
        let own = self.agent_machine.as_ref();
        let own = own.map(|am| am.uid.clone().unwrap_or_else(|| am.name.clone()));
        let mut all = self.before.clone();
        all.retain(|uid| own.as_ref() != Some(uid));
        all.extend(own);
        let last = all.len().saturating_sub(MAX_BEFORE);
        all.split_off(last)
    }
}

/// The goal of that VsphereAgent, if nothing else was written since.
fn goal(object: &VsphereAgent) -> Option<&Goal> {
    let goal = object.spec.goal.as_ref()?;
    let same = |key, named: &Option<NamedUid>| {
        annotation(object, key) == named.as_ref().map(|named| named.uid.as_str())
    };
    let copies = same(AGENT_MACHINE_UID_ANNOTATION, &goal.agent_machine)
        && same(MACHINE_UID_ANNOTATION, &goal.machine);
    // These have no copies: with a goal, this release takes them off.
    let notes = [RECYCLE_ANNOTATION, OFFERED_TO_ANNOTATION];
    (copies && notes.map(|key| annotation(object, key)) == [None, None]).then_some(goal)
}

/// Reads what is asked of that VsphereAgent.
#[must_use]
pub fn of(object: &VsphereAgent) -> Asked {
    let Some(goal) = goal(object) else {
        return by_annotations(object);
    };
    let agent_machine = goal.agent_machine.as_ref().map(Recorded::from);
    Asked {
        machine: match &goal.machine {
            Some(machine) => Some(machine.into()),
            None => agent_machine.clone().map(of_same_name),
        },
        agent_machine,
        life: goal.life,
        before: goal.before.clone(),
        user: goal.pool.clone(),
    }
}

/// The pool that made that VsphereAgent, or to which it moved since: that of `spec.poolRef`. It counts the VM, and its holds act on
/// it.
#[must_use]
pub fn maker(object: &VsphereAgent) -> ObjectKey {
    let namespace = object.namespace().unwrap_or_default();
    ObjectKey::new(&namespace, &object.spec.pool_ref.name)
}

/// The pool that uses that VsphereAgent, which is its maker's unless a pool of another namespace has it. Everything but the
/// questions of [`maker`] asks for this one.
#[must_use]
pub fn user(object: &VsphereAgent) -> ObjectKey {
    let goal = object.spec.goal.as_ref();
    let user = goal.and_then(|goal| goal.pool.as_ref());
    user.map_or_else(
        || maker(object),
        |user| ObjectKey::new(&user.namespace, &user.name),
    )
}

/// Which of the two namespaces of a shared host does not admit pools of the other one, by the annotation `allow-pools-from` that
/// `grant` reads: first that one, then the other. `None`: nothing stands against it.
#[must_use]
pub fn refusing(
    object: &VsphereAgent,
    grant: impl Fn(&str) -> Option<String>,
) -> Option<(String, String)> {
    grants::refusing(&maker(object).namespace, &user(object).namespace, grant)
}

/// The uid of the AgentMachine that it is for.
#[must_use]
pub fn wanted_by(object: &VsphereAgent) -> Option<&str> {
    match goal(object) {
        Some(goal) => goal.agent_machine.as_ref().map(|am| am.uid.as_str()),
        None => annotation(object, AGENT_MACHINE_UID_ANNOTATION),
    }
}

/// Waits for an AgentMachine. What the status says of an earlier one is out of date.
#[must_use]
pub fn is_in_buffer(object: &VsphereAgent) -> bool {
    match goal(object) {
        Some(goal) => goal.agent_machine.is_none(),
        None => {
            is_of_buffer(object)
                && !object.labels().contains_key(AGENT_MACHINE_LABEL)
                && annotation(object, AGENT_MACHINE_UID_ANNOTATION).is_none()
        }
    }
}

/// It was made for the buffer, or came there.
#[must_use]
pub fn is_of_buffer(object: &VsphereAgent) -> bool {
    let made_for = object.labels().get(CREATED_FOR_LABEL);
    made_for.is_some_and(|v| v == CREATED_FOR_BUFFER)
}

/// AgentMachine and Machine share their name.
fn of_same_name(am: Recorded) -> Recorded {
    Recorded { uid: None, ..am }
}

fn annotation<'a>(object: &'a VsphereAgent, key: &str) -> Option<&'a str> {
    let value = object.annotations().get(key).map(String::as_str);
    value.filter(|v| !v.is_empty())
}

/// As the predecessor says it, and releases before the goal.
fn by_annotations(object: &VsphereAgent) -> Asked {
    let offered = annotation(object, OFFERED_TO_ANNOTATION);
    let offered = offered.and_then(|text| text.rsplit('/').next());
    let offered = offered.into_iter().flat_map(|all| all.split(','));
    // What an earlier goal explains stays explained.
    let earlier = object.spec.goal.iter().flat_map(|goal| {
        let own = goal.agent_machine.as_ref().map(|am| &am.uid);
        goal.before.iter().chain(own).map(String::as_str)
    });
    let buffered = is_in_buffer(object);
    Asked {
        agent_machine: recorded_agent_machine(object).filter(|_| !buffered),
        machine: recorded_machine(object).filter(|_| !buffered),
        life: annotation(object, RECYCLE_ANNOTATION).and_then(next_life),
        before: earlier.chain(offered).map(str::to_owned).collect(),
        user: object.spec.goal.as_ref().and_then(|goal| goal.pool.clone()),
    }
}

/// Reads `<attempt>/<life>`.
fn next_life(text: &str) -> Option<NextLife> {
    let (attempt, generation) = text.split_once('/')?;
    Some(NextLife {
        attempt: attempt.parse().ok()?,
        generation: generation.parse().ok()?,
    })
}

fn recorded_agent_machine(object: &VsphereAgent) -> Option<Recorded> {
    let uid = annotation(object, AGENT_MACHINE_UID_ANNOTATION).map(str::to_owned);
    let label = object.labels().get(AGENT_MACHINE_LABEL);
    let label = label.filter(|name| !name.is_empty()).cloned();
    let in_status = || {
        let vm = object.status.as_ref()?.vm.as_ref()?;
        let r = vm.agent_machine_ref.as_ref()?;
        let same = uid.is_some() && r.uid == uid;
        r.name.clone().filter(|name| same && !name.is_empty())
    };
    // Users can edit a label. So the uid decides; the name is only for live reads, and both objects share it.
    let by_machine = || annotation(object, MACHINE_NAME_ANNOTATION).filter(|_| uid.is_some());
    let name = in_status().or(label);
    let name = name.or_else(|| by_machine().map(str::to_owned));
    let name = name.or_else(|| uid.as_ref().map(|_| object.name_any()))?;
    Some(Recorded { name, uid })
}

fn recorded_machine(object: &VsphereAgent) -> Option<Recorded> {
    let own = annotation(object, MACHINE_NAME_ANNOTATION).map(|name| Recorded {
        name: name.to_owned(),
        uid: annotation(object, MACHINE_UID_ANNOTATION).map(str::to_owned),
    });
    let in_status = || {
        let vm = object.status.as_ref()?.vm.as_ref()?;
        // Beside our own annotations it is only a copy, which is late after a new assignment.
        let is_all = annotation(object, AGENT_MACHINE_UID_ANNOTATION).is_none();
        let r = vm.machine_ref.as_ref().filter(|_| is_all)?;
        Some(Recorded {
            name: r.name.clone()?,
            uid: r.uid.clone().filter(|u| !u.is_empty()),
        })
    };
    // Old records contain nothing else.
    own.or_else(in_status)
        .or_else(|| recorded_agent_machine(object).map(of_same_name))
}

#[cfg(test)]
mod tests {
    use agent_forge_crds::agent::VmStatus;
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;
    use crate::testing::{buffered, child, child_with_vm, with};

    fn recorded(name: &str, uid: Option<&str>) -> Option<Recorded> {
        Some(Recorded {
            name: name.to_owned(),
            uid: uid.map(str::to_owned),
        })
    }

    /// As a release before the goal wrote it.
    fn before(mut object: VsphereAgent, annotations: &[(&str, &str)]) -> VsphereAgent {
        object.spec.goal = None;
        let annotations = annotations.iter();
        let annotations = annotations.map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        object.annotations_mut().extend(annotations);
        object
    }

    #[test]
    fn what_an_earlier_release_wrote_says_the_same_as_a_goal() {
        let made = child("a");
        assert_eq!(of(&before(made.clone(), &[])), of(&made));
        let waits = buffered("a");
        assert_eq!(of(&before(waits.clone(), &[])), of(&waits));
        let asked = with(waits, |c| {
            let goal = c.spec.goal.get_or_insert_default();
            goal.life = Some(NextLife {
                attempt: 2,
                generation: 3,
            });
            goal.before = vec!["u".to_owned(), "v".to_owned()];
        });
        let notes = [
            (RECYCLE_ANNOTATION, "2/3"),
            (OFFERED_TO_ANNOTATION, "2/2/u,v"),
        ];
        assert_eq!(of(&before(asked.clone(), &notes)), of(&asked));
        for bad in ["2", "2/x", "x/2", ""] {
            let odd = before(asked.clone(), &[(RECYCLE_ANNOTATION, bad)]);
            assert_eq!(of(&odd).life, None, "{bad}");
        }
    }

    /// The predecessor wrote labels and status, and no uid of the AgentMachine.
    #[test]
    fn a_record_of_the_predecessor_is_read_by_its_label_and_status() {
        let mut old = before(child_with_vm("a"), &[]);
        old.annotations_mut().clear();
        let asked = of(&old);
        assert_eq!(asked.agent_machine, recorded("a", None));
        assert_eq!(asked.machine, recorded("a", None));
        let status = old.status.as_mut().expect("a status");
        let machine_ref = Some(ObjectReference {
            name: Some("m".to_owned()),
            uid: Some("uid-m".to_owned()),
            ..ObjectReference::default()
        });
        status.vm = Some(VmStatus {
            machine_ref,
            ..status.vm.clone().unwrap_or_default()
        });
        assert_eq!(of(&old).machine, recorded("m", Some("uid-m")));
    }

    /// No label decides beside a goal.
    #[test]
    fn a_goal_stands_above_labels() {
        let object = with(child("a"), |c| c.labels_mut().clear());
        assert_eq!(of(&object), of(&child("a")));
        let waits = with(buffered("a"), |c| {
            c.labels_mut().clear();
            let label = (AGENT_MACHINE_LABEL.to_owned(), "b".to_owned());
            c.labels_mut().extend([label]);
        });
        assert!(is_in_buffer(&waits));
        assert!(!is_in_buffer(&before(waits, &[])));
    }

    /// Another release ran meanwhile, or a person wrote the new uids of a restored hub.
    #[test]
    fn what_was_written_after_the_goal_counts() {
        let annotated = |object: VsphereAgent, key: &str, value: &str| {
            with(object, |c| {
                let (key, value) = (key.to_owned(), value.to_owned());
                c.annotations_mut().extend([(key, value)]);
            })
        };
        let other = annotated(child("a"), AGENT_MACHINE_UID_ANNOTATION, "am-b");
        assert_eq!(of(&other).agent_machine, recorded("a", Some("am-b")));
        assert_eq!(
            of(&other).before,
            ["am-a"],
            "what the goal explains stays explained"
        );
        let other = annotated(child("a"), MACHINE_UID_ANNOTATION, "m-b");
        assert_eq!(of(&other).machine, recorded("a", Some("m-b")));
        let life = NextLife {
            attempt: 1,
            generation: 2,
        };
        let asked = annotated(buffered("a"), RECYCLE_ANNOTATION, "1/2");
        assert!(is_in_buffer(&asked));
        assert_eq!(of(&asked).life, Some(life));
        let gone = with(child("a"), |c| c.annotations_mut().clear());
        assert_eq!(of(&gone).agent_machine, recorded("a", None), "by the label");
    }

    /// A host counts for its user only while both namespaces want that.
    #[test]
    fn a_shared_host_has_a_maker_and_a_user() {
        let own = ObjectKey::new(crate::testing::NAMESPACE, crate::testing::POOL);
        assert_eq!(
            (maker(&child("a")), user(&child("a"))),
            (own.clone(), own.clone())
        );
        let shared = with(child("a"), |c| {
            c.spec.goal.get_or_insert_default().pool = Some(PoolKey {
                namespace: "elsewhere".to_owned(),
                name: "q".to_owned(),
            });
        });
        let there = ObjectKey::new("elsewhere", "q");
        assert_eq!((maker(&shared), user(&shared)), (own.clone(), there));
        let asked = of(&shared);
        let named = NamedUid::default();
        let kept = [asked.for_buffer(None), asked.for_machine(named, None)];
        assert!(kept.iter().all(|goal| goal.pool == asked.user), "{kept:?}");
        // Whoever writes new uids into the copies does not change whose it is.
        let (key, value) = (AGENT_MACHINE_UID_ANNOTATION.to_owned(), "am-b".to_owned());
        let given = with(shared.clone(), |c| {
            c.annotations_mut().extend([(key, value)])
        });
        assert_eq!(user(&given), user(&shared));
        assert_eq!(of(&given).user, asked.user);
        let grant =
            |to: &'static [&'static str]| move |of: &str| to.contains(&of).then(|| "*".to_owned());
        let refused = |to| refusing(&shared, grant(to)).map(|(of, _)| of);
        assert_eq!(refused(&["demo", "elsewhere"]), None);
        assert_eq!(refused(&["demo"]).as_deref(), Some("elsewhere"));
        assert_eq!(refused(&["elsewhere"]).as_deref(), Some("demo"));
        assert_eq!(refusing(&child("a"), grant(&[])), None);
    }

    #[test]
    fn the_last_eight_that_had_the_host_are_kept_and_each_once() {
        let mut asked = of(&child("a"));
        for n in 0..12 {
            asked.agent_machine = recorded("x", Some(&format!("u{}", n % 10)));
            asked.before = asked.for_buffer(None).before;
        }
        let expected = ["u4", "u5", "u6", "u7", "u8", "u9", "u0", "u1"];
        assert_eq!(asked.before, expected);
        assert_eq!(of(&buffered("a")).for_buffer(None).before, [""; 0]);
        let own = of(&child("a"));
        let named = |uid: &str| NamedUid {
            name: "a".to_owned(),
            uid: uid.to_owned(),
        };
        assert_eq!(own.for_machine(named("am-a"), None).before, [""; 0]);
        assert_eq!(own.for_machine(named("am-b"), None).before, ["am-a"]);
    }
}
