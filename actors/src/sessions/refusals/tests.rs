//! When a password is sent again: with the same bytes, other bytes, other Secrets, other processes.

use agent_forge_crds::Time;
use secrecy::SecretString;
use url::Url;

use super::*;
use crate::{
    ports::vcenter::{Credentials, Trust},
    testing,
};

/// A second, on both clocks.
fn m(second: u64) -> Moment {
    Moment {
        monotonic: Duration::from_secs(second),
        wall: testing::at(second.cast_signed()),
    }
}

fn login_as(server: &str, username: &str, password: &str, rv: &str) -> Login {
    let credentials = Credentials {
        server: Url::parse(server).expect("a URL"),
        username: username.to_owned(),
        password: SecretString::from(password),
        trust: Trust::System,
    };
    let version = SecretVersion {
        uid: "secret".to_owned(),
        resource_version: rv.to_owned(),
    };
    Login::of(&credentials, version)
}

fn login(password: &str) -> Login {
    login_as("https://vc.example/", "u@vsphere.local", password, password)
}

/// The next try, if it is not now.
fn again(refusals: &Refusals, login: &Login, second: u64) -> Option<Timestamp> {
    match refusals.may_try(login, Door::Session, m(second)) {
        Ok(()) => None,
        Err(Rest::Refused { again, .. } | Rest::Limited { again }) => Some(again),
    }
}

/// A status shows that time. It would be written in each pass if the time moved.
#[test]
fn the_next_try_has_one_time_whenever_it_is_asked() {
    let millis = |n: u64| Moment {
        monotonic: Duration::from_millis(n),
        wall: testing::at(0) + SignedDuration::from_millis(n.cast_signed() + 400),
    };
    let mut refusals = Refusals::default();
    refusals.refused(&login("a"), Door::Session, millis(0));
    for n in (0..600_000).step_by(37) {
        let told = refusals.may_try(&login("a"), Door::Session, millis(n));
        let again = testing::at(601);
        assert_eq!(
            told,
            Err(Rest::Refused {
                again,
                others: None
            }),
            "{n} ms"
        );
    }
}

#[test]
fn however_many_secrets_there_are_two_refusals_in_ten_minutes_are_all() {
    let mut refusals = Refusals::default();
    let mut told: Vec<u64> = Vec::new();
    // A hundred Secrets, each with other bytes, each asked for every second of an hour.
    for second in 0..3600 {
        for secret in 0..100 {
            let login = login(&secret.to_string());
            if refusals.may_try(&login, Door::Session, m(second)).is_ok() {
                refusals.refused(&login, Door::Session, m(second));
                told.push(second);
            }
        }
    }
    assert!(told.len() > 6, "they are tried: {told:?}");
    for at in &told {
        let within = told.iter().filter(|t| (*at..at + 600).contains(t)).count();
        assert!(within <= MOST, "{within} from {at} on: {told:?}");
    }
}

#[test]
fn what_somebody_has_just_written_comes_before_what_was_refused_already() {
    let mut refusals = Refusals::default();
    let (old, new, newer) = (login("old"), login("new"), login("newer"));
    refusals.refused(&old, Door::Session, m(0));
    assert_eq!(again(&refusals, &old, 1), Some(m(600).wall));
    assert_eq!(again(&refusals, &new, 1), None, "a changed Secret at once");
    refusals.refused(&new, Door::Session, m(100));
    assert_eq!(again(&refusals, &newer, 101), Some(m(600).wall));
    assert_eq!(
        refusals.rest(&new, m(101)),
        Rest::Refused {
            again: m(700).wall,
            others: Some(m(600).wall)
        }
    );
    // The first refusal does not count any more. There is room for bytes that were never tried, not for refused ones.
    assert_eq!(again(&refusals, &old, 600), Some(m(700).wall));
    assert_eq!(again(&refusals, &newer, 600), None);
    assert_eq!(again(&refusals, &old, 700), None);
}

#[test]
fn bytes_that_opened_a_session_are_kept_away_by_no_other_secret() {
    let mut refusals = Refusals::default();
    let good = login("good");
    refusals.opened(&good);
    for other in ["a", "b"] {
        refusals.refused(&login(other), Door::Session, m(0));
    }
    assert!(again(&refusals, &login("c"), 1).is_some());
    assert_eq!(again(&refusals, &good, 1), None);
    // When vCenter refuses them, they rest like all others, and lose their privilege.
    refusals.refused(&good, Door::Session, m(2));
    assert_eq!(again(&refusals, &good, 3), Some(m(602).wall));
    refusals.refused(&login("d"), Door::Session, m(601));
    assert!(again(&refusals, &good, 602).is_some());
}

#[test]
fn an_account_is_one_however_it_is_spelled_and_others_are_not_concerned() {
    let mut refusals = Refusals::default();
    for (n, (server, user)) in [
        ("https://vc.example/", "u@vsphere.local"),
        ("https://VC.example.:8443/", "VSPHERE.LOCAL\\U"),
    ]
    .into_iter()
    .enumerate()
    {
        let login = login_as(server, user, &n.to_string(), "");
        assert_eq!(again(&refusals, &login, 0), None);
        refusals.refused(&login, Door::Session, m(0));
    }
    let third = login_as("https://vc.example/", " U ", "third", "");
    assert!(again(&refusals, &third, 1).is_some());
    for (server, user) in [("https://vc.example/", "v"), ("https://vc2.example/", "u")] {
        assert_eq!(again(&refusals, &login_as(server, user, "x", ""), 1), None);
    }
}

#[test]
fn two_names_of_one_vcenter_are_one_account_also_for_the_next_process() {
    let (name, alias) = ("https://vc.example/", "https://10.0.0.7/");
    let as_u = |server, password| login_as(server, "u@vsphere.local", password, password);
    let (a, b, c) = (as_u(name, "a"), as_u(alias, "b"), as_u(alias, "c"));
    let one = Instance::of(b"certificate", "uuid");
    for other in [
        Instance::of(b"certificate", "another"),
        Instance::of(b"another", "uuid"),
    ] {
        let mut refusals = Refusals::default();
        refusals.answered(&a.account, one);
        refusals.answered(&b.account, other);
        refusals.refused(&a, Door::Session, m(0));
        refusals.refused(&b, Door::Session, m(1));
        assert_eq!(again(&refusals, &c, 2), None, "only one of both agrees");
    }
    let mut refusals = Refusals::default();
    refusals.refused(&a, Door::Session, m(0));
    refusals.refused(&b, Door::Session, m(1));
    assert_eq!(again(&refusals, &c, 2), None, "not known");
    refusals.answered(&a.account, one);
    refusals.answered(&b.account, one);
    assert_eq!(again(&refusals, &c, 2), Some(m(600).wall));
    let another_user = login_as(alias, "v", "x", "");
    assert_eq!(again(&refusals, &another_user, 2), None);
    // The same password is not refused once more at the other name.
    assert_eq!(again(&refusals, &as_u(alias, "a"), 2), Some(m(601).wall));
    // Another vCenter has the alias now.
    refusals.answered(&b.account, Instance::of(b"new", "new"));
    assert_eq!(again(&refusals, &c, 2), None);
    // What the pools have on record. The alias has not answered this process.
    let told = |login: &Login, second| {
        let pool = pool(
            Some(login.account.as_str()),
            &login.version.resource_version,
            second,
        );
        Arc::new(testing::with((*pool).clone(), |p| {
            let status = p.status.get_or_insert_default();
            let record = status.refused_credentials.get_or_insert_default();
            record.vcenter = Some(one.to_string());
        }))
    };
    let pools = [told(&a, 0), told(&b, 1)];
    let mut refusals = Refusals::default();
    refusals.recall("u", &pools, m(2));
    let fresh = as_u(name, "fresh");
    assert_eq!(again(&refusals, &fresh, 2), Some(m(600).wall));
}

/// People correct the domain of a user, or the port. The password may be the right one.
#[test]
fn a_corrected_user_or_server_with_the_same_password_is_tried_at_once() {
    let mut refusals = Refusals::default();
    let refused = login_as("https://vc.example/", "u", "p", "1");
    refusals.refused(&refused, Door::Session, m(0));
    for (server, user) in [
        ("https://vc.example/", "u@corp.local"),
        ("https://vc.example:8443/", "u"),
    ] {
        let corrected = login_as(server, user, "p", "2");
        assert_eq!(again(&refusals, &corrected, 1), None, "{server} {user}");
    }
}

#[test]
fn a_password_on_its_way_counts_at_the_other_names_of_the_vcenter_alone() {
    let mut refusals = Refusals::default();
    let as_u = |server, password| login_as(server, "u", password, password);
    let (a, b) = (as_u("https://vc/", "a"), as_u("https://alias/", "b"));
    let one = Instance::of(b"certificate", "uuid");
    for login in [&a, &b] {
        refusals.answered(&login.account, one);
    }
    refusals.sends(&a.account);
    assert_eq!(again(&refusals, &b, 0), None, "one is no refusal yet");
    refusals.refused(&as_u("https://vc/", "c"), Door::Session, m(0));
    assert_eq!(again(&refusals, &b, 1), Some(m(31).wall));
    assert_eq!(again(&refusals, &a, 1), None, "its host lets one at a time");
    refusals.sent(&a.account);
    assert_eq!(again(&refusals, &b, 1), None);
    let opened = as_u("https://alias/", "opened");
    refusals.opened(&opened);
    refusals.refused(&as_u("https://vc/", "d"), Door::Session, m(1));
    assert_eq!(again(&refusals, &opened, 2), None);
}

#[test]
fn a_door_that_refuses_keeps_no_other_door_shut_but_counts() {
    let mut refusals = Refusals::default();
    let good = login("good");
    refusals.opened(&good);
    refusals.refused(&good, Door::Folder, m(0));
    assert!(refusals.may_try(&good, Door::Folder, m(599)).is_err());
    assert!(refusals.may_try(&good, Door::Folder, m(600)).is_ok());
    assert_eq!(
        again(&refusals, &good, 1),
        None,
        "its session may be opened anew"
    );
    let mut refusals = Refusals::default();
    refusals.refused(&login("a"), Door::Folder, m(0));
    refusals.refused(&login("b"), Door::Automation, m(0));
    assert_eq!(again(&refusals, &login("c"), 1), Some(m(600).wall));
}

/// The record of a pool about that state of the Secret.
fn pool(account: Option<&str>, rv: &str, second: i64) -> Arc<VsphereAgentPool> {
    let record = RefusedCredentials {
        account: account.map(str::to_owned),
        refused_at: Some(Time(testing::at(second))),
        secret_resource_version: rv.to_owned(),
        secret_uid: "secret".to_owned(),
        ..RefusedCredentials::default()
    };
    Arc::new(testing::with(testing::pool("p"), |p| {
        p.status.get_or_insert_default().refused_credentials = Some(record);
    }))
}

#[test]
fn what_an_earlier_process_was_refused_has_the_rest_of_its_rest() {
    // The age of the refusal when this process reads it, by the wall clock, and how long the bytes then rest.
    let cases = [(0, 600), (1, 599), (599, 1), (600, 0), (9000, 0), (-5, 600)];
    for (age, rest) in cases {
        for account in [None, Some("u@vc.example")] {
            // A process that has just started: its monotonic clock begins with zero.
            let began = Moment {
                monotonic: Duration::ZERO,
                wall: testing::at(10_000),
            };
            let pools = [pool(account, "old", 10_000 - age)];
            let mut refusals = Refusals::default();
            let login = login("old");
            refusals.recall("u", &pools, began);
            refusals.identify(&login, &pools, began);
            let at = |second| Moment {
                monotonic: Duration::from_secs(second),
                ..began
            };
            let may = |second| refusals.may_try(&login, Door::Session, at(second)).is_ok();
            assert!(may(rest), "{age} s old");
            assert!(rest == 0 || !may(rest - 1), "{age} s old");
            if rest > 0 {
                assert_eq!(refusals.at(&login.digest), Some(testing::at(10_000 - age)));
            }
        }
    }
}

#[test]
fn what_earlier_processes_were_refused_counts_for_secrets_that_were_not() {
    let pools = [
        pool(Some("u@vc.example"), "a", 100),
        pool(Some("u@vc.example"), "a", 100),
        pool(Some("u@vc.example"), "b", 200),
        pool(Some("u@other.example"), "c", 200),
    ];
    let mut refusals = Refusals::default();
    let (fresh, a) = (login("fresh"), login("a"));
    refusals.recall("u", &pools[..2], m(300));
    refusals.identify(&fresh, &pools[..2], m(300));
    assert_eq!(
        again(&refusals, &fresh, 300),
        None,
        "one refusal, told by two pools"
    );
    refusals.recall("u", &pools, m(300));
    assert_eq!(again(&refusals, &fresh, 300), Some(m(700).wall));
    refusals.identify(&a, &pools, m(300));
    assert_eq!(refusals.at(&a.digest), Some(m(100).wall));
    assert_eq!(again(&refusals, &fresh, 700), None);
    assert!(again(&refusals, &a, 700).is_some(), "known as refused");
    assert_eq!(again(&refusals, &a, 800), None);
}

/// The status of a pool has one record, and two refusals hold the account back.
#[test]
fn the_record_of_one_pool_tells_both_refusals_that_hold_an_account_back() {
    let mut first = Refusals::default();
    let (a, b, fresh) = (login("a"), login("b"), login("fresh"));
    first.refused(&a, Door::Session, m(100));
    assert_eq!(first.earlier(&a), None);
    first.refused(&b, Door::Session, m(300));
    assert_eq!(first.earlier(&b), Some(m(100).wall));
    assert_eq!(first.earlier(&a), None, "the other one came later");
    let told = |earlier: Option<Timestamp>| {
        let told = Arc::unwrap_or_clone(pool(Some("u@vc.example"), "b", 300));
        Arc::new(testing::with(told, |p| {
            let status = p.status.get_or_insert_default();
            let record = status.refused_credentials.get_or_insert_default();
            record.earlier_at = earlier.map(Time);
        }))
    };
    let recalled = |pools: &[Arc<VsphereAgentPool>]| {
        let mut refusals = Refusals::default();
        refusals.recall("u", pools, m(400));
        refusals.identify(&fresh, pools, m(400));
        refusals
    };
    assert_eq!(again(&recalled(&[told(None)]), &fresh, 400), None);
    let both = recalled(&[told(first.earlier(&b)), told(first.earlier(&b))]);
    assert_eq!(again(&both, &fresh, 400), Some(m(700).wall));
    assert_eq!(again(&both, &fresh, 700), None);
    // Ten minutes apart they never counted together.
    first.refused(&login("c"), Door::Session, m(900));
    assert_eq!(first.earlier(&login("c")), None);
}

#[test]
fn a_record_speaks_of_one_state_of_one_secret() {
    let pools = [
        pool(None, "7", 100),
        pool(None, "7", 300),
        pool(None, "8", 500),
    ];
    let at = |rv: &str| {
        let mut refusals = Refusals::default();
        let login = login_as("https://vc.example/", "u", "p", rv);
        refusals.identify(&login, &pools, m(510));
        refusals.at(&login.digest)
    };
    assert_eq!(at("7"), Some(testing::at(300)), "the last");
    assert_eq!(at("8"), Some(testing::at(500)));
    assert_eq!(at("6"), None);
}

#[test]
fn one_refusal_of_bytes_in_two_secrets_counts_once_after_a_restart() {
    let server = "https://vc.example/";
    let (one, two) = (
        login_as(server, "u", "the same", "1"),
        login_as(server, "u", "the same", "2"),
    );
    let mended = login_as(server, "u", "right", "3");
    let account = Some(one.account.as_str());
    let pools = [pool(account, "1", 100), pool(account, "2", 100)];
    let mut refusals = Refusals::default();
    refusals.recall("u", &pools, m(200));
    // Before both Secrets were read, it is not known that their bytes are the same.
    assert_eq!(again(&refusals, &mended, 200), Some(m(700).wall));
    refusals.identify(&one, &pools, m(200));
    refusals.identify(&two, &pools, m(200));
    assert_eq!(again(&refusals, &mended, 200), None, "one was refused");
    assert!(again(&refusals, &two, 200).is_some(), "and rests");
}
