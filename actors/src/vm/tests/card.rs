//! A VM with a replaced network card: its Agent is recognised by both cards, and is not left behind.

use agent_forge_crds::{conditions::Reason, external::agent::Agent};

use super::*;
use crate::domain::identity::MacAddress;

const NEW: &str = "00:50:56:99:99:99";

fn replace_card(bench: &Bench) {
    bench.site.with(|i| {
        let new = MacAddress::parse(NEW).expect("a MAC");
        i.vms[0].macs = vec![new];
    });
}

fn tell(agent: &mut Agent, mac: &str) {
    let status = agent.status.as_mut().expect("status");
    let inventory = status.inventory.as_mut().expect("inventory");
    for interface in &mut inventory.interfaces {
        interface.mac_address = Some(mac.to_owned());
    }
}

/// The guest reports the new card.
fn report(bench: &Bench) {
    bench.hub.with(|o| tell(&mut o.agents[0], NEW));
}

async fn registered() -> Bench {
    let mut bench = on().await;
    let agent = late_agent(&bench);
    bench.hub.with(|o| o.agents = vec![agent]);
    bench.pass().await;
    bench.turn(MINUTE);
    bench.pass().await;
    bench
}

#[tokio::test]
async fn before_it_serves_the_new_card_is_recorded_and_its_agent_is_known_again() {
    for known in [true, false] {
        // Replaced before its Agent registered, or after.
        let mut bench = if known {
            registered().await
        } else {
            on().await
        };
        let old = bench.vm().mac_addresses;
        if !known {
            let agent = late_agent(&bench);
            bench.hub.with(|o| o.agents = vec![agent]);
        }
        report(&bench);
        bench.pass().await;
        assert_eq!(bench.waits_on(), Some(Reason::MacDiffers));
        let again = bench.pass().await.again.expect("it looks again");
        assert!(again <= 2 * MINUTE, "{again:?}");
        replace_card(&bench);
        bench.turn(again);
        bench.pass().await;
        bench.turn(MINUTE);
        bench.pass().await;
        assert_eq!(bench.waits_on(), None, "{known}");
        let macs = bench.vm().mac_addresses;
        assert_eq!(macs.first().map(String::as_str), Some(NEW));
        assert!(
            old.iter().all(|mac| macs.contains(mac)),
            "the old one is known: {macs:?}"
        );
        assert_eq!(bench.times(E::PowerOff), 0);
    }
}

#[tokio::test]
async fn no_agent_stays_behind_when_such_a_vm_goes() {
    for served in [true, false] {
        let mut bench = on().await;
        bind_agent(&bench);
        if !served {
            let agent = late_agent(&bench);
            bench.hub.with(|o| o.agents = vec![agent]);
        }
        bench.pass().await;
        bench.turn(MINUTE);
        bench.pass().await;
        replace_card(&bench);
        report(&bench);
        bench.hub.with(|o| {
            let free = testing::foreign_agent("x");
            o.agents[0].metadata.labels = free.metadata.labels;
            o.agents[0].metadata.annotations = None;
            o.agents[0].spec = free.spec;
        });
        release(&bench);
        bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
        assert!(bench.hub.with(|o| o.agents.is_empty()), "{served}");
        assert!(bench.site.with(|i| i.vms.is_empty()), "{served}");
    }
    // Its VM was removed before the actor saw the new card.
    let mut bench = registered().await;
    report(&bench);
    bench.site.with(|i| i.vms.clear());
    release(&bench);
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
    assert!(bench.hub.with(|o| o.agents.is_empty()));
}
