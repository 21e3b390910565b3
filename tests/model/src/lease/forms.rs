//! Brings worlds with the same future into one form: it renumbers versions and names, and forgets what cannot have an
//! effect any more.

use std::{cell::RefCell, collections::BTreeSet, time::Duration};

use agent_forge_actors::runtime::lease::Record;

use super::{Ask, Defect, Fate, GONE, Leases, NAMES, World};

/// The object's version, where only that matters. Old versions are small.
const CURRENT: u64 = 100;

impl Leases {
    /// Renames the holder wherever one is named.
    pub(super) fn rename(&self, w: &mut World, name: impl Fn(&'static str) -> &'static str) {
        let called = |holder: &str| {
            let known = NAMES.into_iter().find(|n| *n == holder);
            name(known.unwrap_or(GONE))
        };
        let of_ask = |ask: &mut Ask| {
            if let Ask::Write { holder, .. } = ask {
                *holder = holder.map(&name);
            }
        };
        if let Some(lease) = &mut w.lease {
            lease.holder = lease.holder.map(&name);
        }
        if let Some(ask) = &mut w.late {
            of_ask(ask);
        }
        let record = |record: &Record| Record {
            holder: record.holder.as_deref().map(|h| called(h).to_owned()),
            ..record.clone()
        };
        for operator in &mut w.operators {
            if let Some(call) = &mut operator.call {
                of_ask(&mut call.ask);
                if let Fate::Shown(Some(lease)) = &mut call.fate {
                    lease.holder = lease.holder.map(&name);
                }
            }
            operator.election = operator.election.retold(self.now(), |at| at, record);
        }
    }

    /// The same world with the two operators exchanged.
    pub(super) fn mirrored(&self, w: &World) -> World {
        let mut w = w.clone();
        let other = |name| match NAMES.iter().position(|n| *n == name) {
            Some(n) => NAMES[1 - n],
            None => name,
        };
        self.rename(&mut w, other);
        w.operators.swap(0, 1);
        for (operator, name) in w.operators.iter_mut().zip(NAMES) {
            operator.election = operator.election.clone().renamed(name.to_owned());
        }
        w.let_go = w.let_go.map(|n| 1 - n);
        w
    }

    /// Forgets what cannot have an effect any more.
    pub fn forget(&self, w: &mut World) {
        let current = w.lease.as_ref().map(|l| l.version);
        // Versions only increase, and the object stays. So a write on another version than the present one fails
        // whenever it arrives.
        let fails = |ask: &Ask| {
            let stale = matches!(ask, Ask::Write { version, .. } if *version != current);
            stale && !self.planted(Defect::BlindWrites)
        };
        w.late = w.late.take().filter(|ask| !fails(ask));
        for operator in &mut w.operators {
            let Some(call) = &mut operator.call else {
                continue;
            };
            if call.fate == Fate::Underway && fails(&call.ask) {
                call.fate = Fate::Fails;
            }
            if call.fate != Fate::Underway {
                call.ask = Ask::Read;
            }
            // Whatever happens to the call, what the operator saw before does not matter any more.
            operator.election.shown(Duration::ZERO, None);
            operator.election.failed(Duration::ZERO);
        }
        self.tell_apart(w);
    }

    /// Versions only show which are equal: to the object's ([`CURRENT`]), and among those that one operator knows.
    fn tell_apart(&self, w: &mut World) {
        let current = w.lease.as_ref().map(|l| l.version);
        let mut old = [Vec::new(), Vec::new(), Vec::new()];
        self.versions(w, |whose, v| {
            if current == Some(v) {
                return CURRENT;
            }
            let known = &mut old[whose];
            let at = known.iter().position(|k| *k == v).unwrap_or_else(|| {
                known.push(v);
                known.len() - 1
            });
            at as u64 + 1
        });
    }

    /// Versions only show their order.
    pub(super) fn rank(&self, w: &mut World) {
        let mut all = BTreeSet::new();
        self.versions(w, |_, v| {
            all.insert(v);
            v
        });
        let ranks: Vec<u64> = all.into_iter().collect();
        let rank = |v: u64| ranks.binary_search(&v).map_or(v, |at| at as u64 + 1);
        self.versions(w, |_, v| rank(v));
    }

    /// Renumbers all versions. `each` gets the operator that a version belongs to, or a number that means no operator.
    fn versions(&self, w: &mut World, mut each: impl FnMut(usize, u64) -> u64) {
        let nobody = w.operators.len();
        if let Some(lease) = &mut w.lease {
            lease.version = each(nobody, lease.version);
        }
        let asked = |ask: &mut Ask, each: &mut dyn FnMut(u64) -> u64| {
            if let Ask::Write {
                version: Some(v), ..
            } = ask
            {
                *v = each(*v);
            }
        };
        if let Some(ask) = &mut w.late {
            asked(ask, &mut |v| each(nobody, v));
        }
        for (n, operator) in w.operators.iter_mut().enumerate() {
            let mut each = |v| each(n, v);
            if let Some(call) = &mut operator.call {
                asked(&mut call.ask, &mut each);
                match &mut call.fate {
                    Fate::Shown(Some(lease)) => lease.version = each(lease.version),
                    Fate::Written(v) => *v = each(*v),
                    _ => {}
                }
            }
            let each = RefCell::new(&mut each);
            let renamed = |record: &Record| Record {
                version: match record.version.parse() {
                    Ok(v) => (each.borrow_mut())(v).to_string(),
                    Err(_) => record.version.clone(),
                },
                ..record.clone()
            };
            operator.election = operator.election.retold(self.now(), |at| at, renamed);
        }
    }
}
