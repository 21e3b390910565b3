//! Which request is next: tables, and properties that always hold.

use proptest::{collection::vec, prelude::*};

use super::*;

fn request(errand: Errand, pool: &str) -> Request {
    Request {
        errand,
        pool: ObjectKey::new("demo", pool),
        datastore: String::new(),
    }
}

/// `b` begins, `g` continues, `r` removes; then the pool.
fn told(text: &str) -> Request {
    let (errand, pool) = text.split_at(1);
    let errand = match errand {
        "b" => Errand::Begin,
        "g" => Errand::GoOn,
        _ => Errand::Remove,
    };
    request(errand, pool)
}

/// Gives slots to `waiting` while there are any. Returns who got one; `*` marks the extra slot.
fn given(turns: &mut Turns, waiting: &mut Vec<Request>) -> Vec<String> {
    let mut all = Vec::new();
    while let Some((at, kind)) = turns.next(waiting.iter()) {
        let next = waiting.remove(at);
        turns.give(&next, kind.clone(), !waiting.is_empty());
        let letter = match next.errand {
            Errand::Create => "c",
            Errand::Begin => "b",
            Errand::GoOn => "g",
            Errand::Remove => "r",
        };
        let star = if kind == Kind::Reserve { "*" } else { "" };
        all.push(format!("{letter}{}{star}", next.pool.name));
    }
    all
}

/// The order in which `waiting` is served by one common slot that comes back each time. The extra slot does not come back.
fn one_by_one(waiting: &str, most: usize) -> String {
    let mut turns = Turns::new(Limits::tasks(most));
    (0..most).for_each(|_| turns.count("d"));
    let mut waiting: Vec<_> = waiting.split(' ').map(told).collect();
    let mut all = given(&mut turns, &mut waiting);
    while !waiting.is_empty() {
        turns.take_back(Kind::Common, true);
        all.extend(given(&mut turns, &mut waiting));
    }
    all.join(" ")
}

#[test]
fn pools_take_turns_and_half_made_vms_go_on_first() {
    for (waiting, order) in [
        ("bA bA bA", "bA bA bA"),
        ("bA bA bA bB", "bA bB bA bA"),
        ("bA bA bA bB bB bC", "bA bB bC bA bB bA"),
        ("bA bA gA", "gA bA bA"),
        ("bA gB gA", "gB gA bA"),
        ("bA rB rB bA", "rB* bA rB bA"),
        // The removals of a pool do not wait behind what it begins.
        ("bA bA bA rA rA rA", "rA* bA rA bA rA bA"),
        // No pool is always first: of two slots every third turn is another pool's.
        ("bA gA gA gA gA gA", "gA gA bA gA gA gA"),
    ] {
        assert_eq!(one_by_one(waiting, 2), order, "{waiting}");
    }
}

#[test]
fn a_pool_that_comes_back_all_the_time_is_not_new_each_time() {
    let mut turns = Turns::new(Limits::tasks(1));
    let mut waiting: Vec<_> = ["bA", "bA", "bA", "bA", "bB"].map(told).to_vec();
    let mut order = given(&mut turns, &mut waiting);
    for _ in 0..5 {
        turns.take_back(Kind::Common, true);
        waiting.push(told("bB"));
        order.extend(given(&mut turns, &mut waiting));
    }
    assert_eq!(order.join(" "), "bA bB bA bB bA bB");
}

#[test]
fn the_reserve_is_kept_and_comes_back() {
    let mut turns = Turns::new(Limits::tasks(1));
    let mut waiting = vec![told("bA"), told("bA")];
    assert_eq!(given(&mut turns, &mut waiting), ["bA"]);
    for _ in 0..3 {
        waiting.push(told("rA"));
        assert_eq!(given(&mut turns, &mut waiting), ["rA*"]);
        turns.take_back(Kind::Reserve, true);
    }
}

fn create(pool: &str, datastore: &str) -> Request {
    Request {
        datastore: datastore.to_owned(),
        ..request(Errand::Create, pool)
    }
}

const LIMITS: Limits = Limits {
    tasks: 4,
    creates: 3,
    creates_per_datastore: 2,
};

#[test]
fn creates_leave_slots_to_others_and_to_other_datastores() {
    let mut turns = Turns::new(LIMITS);
    let mut waiting = ["x", "x", "x", "y", "y"].map(|d| create("A", d)).to_vec();
    assert_eq!(given(&mut turns, &mut waiting), ["cA", "cA", "cA"]);
    let left: Vec<_> = waiting.iter().map(|r| r.datastore.as_str()).collect();
    assert_eq!(left, ["x", "y"], "two on x, one on y");
    assert_eq!(turns.free(), 1);
    waiting.push(told("rA"));
    waiting.push(told("rA"));
    waiting.push(told("bB"));
    assert_eq!(given(&mut turns, &mut waiting), ["rA*", "bB"]);
    // The slot of a removal is not for a create.
    turns.take_back(Kind::Common, true);
    assert_eq!(given(&mut turns, &mut waiting), ["rA"]);
    turns.take_back(Kind::Create("x".to_owned()), true);
    assert_eq!(given(&mut turns, &mut waiting), ["cA"]);
    assert_eq!(waiting, [create("A", "y")], "x had a free one again");
}

fn any_create() -> impl Strategy<Value = Request> {
    (0..3_usize, 0..3_usize).prop_map(|(pool, d)| create(&format!("p{pool}"), &format!("d{d}")))
}

fn any_request() -> impl Strategy<Value = Request> {
    let errand = prop_oneof![
        Just(Errand::Begin),
        Just(Errand::GoOn),
        Just(Errand::Remove)
    ];
    (errand, 0..4_usize).prop_map(|(errand, pool)| request(errand, &format!("p{pool}")))
}

/// What happens, step by step: a request comes, or the slot taken that many slots ago comes back.
#[derive(Clone, Debug)]
enum Deed {
    Comes(Request),
    Ends(usize),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        any_request().prop_map(Deed::Comes),
        (0..8_usize).prop_map(Deed::Ends),
    ];
    vec(deed, 0..120)
}

proptest! {
    #[test]
    fn bounds_hold_and_no_slot_lies_idle(most in 1..5_usize, deeds in deeds()) {
        let mut turns = Turns::new(Limits::tasks(most));
        let mut waiting: Vec<Request> = Vec::new();
        let mut used: Vec<(Kind, Request)> = Vec::new();
        for deed in deeds {
            match deed {
                Deed::Comes(request) => waiting.push(request),
                Deed::Ends(at) if at < used.len() => turns.take_back(used.remove(at).0, !waiting.is_empty()),
                Deed::Ends(_) => {}
            }
            while let Some((at, kind)) = turns.next(waiting.iter()) {
                let next = waiting.remove(at);
                turns.give(&next, kind.clone(), !waiting.is_empty());
                used.push((kind, next));
            }
            let (common, reserve): (Vec<_>, Vec<_>) = used.iter().partition(|(k, _)| *k == Kind::Common);
            prop_assert!(common.len() <= most && reserve.len() <= 1);
            prop_assert!(reserve.iter().all(|(_, r)| r.errand == Errand::Remove));
            prop_assert_eq!(turns.free(), most - common.len());
            prop_assert!(waiting.is_empty() || common.len() == most, "somebody waits beside a free slot");
            let removal = waiting.iter().any(|r| r.errand == Errand::Remove);
            prop_assert!(!removal || reserve.len() == 1, "a removal waits beside the reserve");
        }
    }

    #[test]
    fn creates_keep_their_limits_and_stop_nothing_else(
        deeds in vec(prop_oneof![
            any_create().prop_map(Deed::Comes),
            any_request().prop_map(Deed::Comes),
            (0..8_usize).prop_map(Deed::Ends),
        ], 0..120),
    ) {
        let mut turns = Turns::new(LIMITS);
        let mut waiting: Vec<Request> = Vec::new();
        let mut used: Vec<Kind> = Vec::new();
        for deed in deeds {
            match deed {
                Deed::Comes(request) => waiting.push(request),
                Deed::Ends(at) if at < used.len() => turns.take_back(used.remove(at), !waiting.is_empty()),
                Deed::Ends(_) => {}
            }
            while let Some((at, kind)) = turns.next(waiting.iter()) {
                let next = waiting.remove(at);
                prop_assert_eq!(matches!(kind, Kind::Create(_)), next.errand == Errand::Create);
                turns.give(&next, kind.clone(), !waiting.is_empty());
                used.push(kind);
            }
            let on = |d: &str| used.iter().filter(|k| **k == Kind::Create(d.to_owned())).count();
            let creates: usize = ["d0", "d1", "d2"].map(on).iter().sum();
            prop_assert!(creates <= LIMITS.creates);
            prop_assert!(["d0", "d1", "d2"].iter().all(|d| on(d) <= LIMITS.creates_per_datastore));
            for request in waiting.iter().filter(|_| turns.free() > 0) {
                let full = creates == LIMITS.creates || on(&request.datastore) == LIMITS.creates_per_datastore;
                prop_assert!(request.errand == Errand::Create && full, "{request:?} waits beside a free slot");
            }
        }
    }

    /// Each request is served within a limited number of turns. The limit depends on the requests ahead in its own line, not
    /// on later ones.
    #[test]
    fn nobody_waits_for_ever(
        most in 1..4_usize,
        ahead in vec(any_request(), 0..20),
        whose in any_request(),
        later in vec(any_request(), 1..8),
    ) {
        let mut turns = Turns::new(Limits::tasks(most));
        (0..most).for_each(|_| turns.count("d"));
        let mut waiting: Vec<(Request, bool)> = ahead.iter().map(|r| (r.clone(), false)).collect();
        let same = |r: &Request| match whose.errand {
            Errand::GoOn => r.errand == Errand::GoOn,
            errand => r.errand == errand && r.pool == whose.pool,
        };
        let before = ahead.iter().filter(|r| same(r)).count();
        waiting.push((whose.clone(), true));
        // Four pools have two lines each. Between two of their turns, as many half-made VMs continue as there are slots.
        let bound = (before + 1) * 8 * (most + 1) + most + 1;
        let mut later = later.into_iter().cycle();
        for turn in 0.. {
            prop_assert!(turn <= bound, "{before} ahead, still waiting after {turn} turns");
            turns.take_back(Kind::Common, true);
            waiting.extend(later.by_ref().take(3).map(|r| (r, false)));
            let mut served = false;
            while let Some((at, kind)) = turns.next(waiting.iter().map(|(r, _)| r)) {
                let (next, is_it) = waiting.remove(at);
                turns.give(&next, kind, !waiting.is_empty());
                served |= is_it;
            }
            if served {
                break;
            }
        }
    }
}
