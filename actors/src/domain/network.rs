//! The network cards that a new VM gets, what they were connected to, and what differs from that. Pure.
//!
//! Networks are compared by the id that vCenter shows with a card. A network that is renamed is no difference.

use agent_forge_crds::agent::{HardwareDifference, NetworkCard};

use super::{
    hardware::{Link, ShownCard, ShownHardware},
    template::difference,
};

/// vSphere gives a VM no more network cards.
const MOST_CARDS: usize = 10;

/// Where the MAC address of a card comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MacSource {
    /// vCenter picks a free address. The operator records it after the first power-on.
    Generated,
}

/// The plan of one network card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicPlan {
    /// Its network, as in the spec.
    pub network: String,
    /// Its MAC address.
    pub mac: MacSource,
}

/// The cards of a VM whose place is on `network`, in the order of creation.
#[must_use]
pub fn nics(network: &str) -> Vec<NicPlan> {
    vec![NicPlan {
        network: network.to_owned(),
        mac: MacSource::Generated,
    }]
}

/// How the cards of a new VM are recorded. The names are those of the spec where vCenter shows as many cards as were planned.
#[must_use]
pub fn record(plan: &[NicPlan], shown: &ShownHardware) -> Vec<NetworkCard> {
    let cards = shown.cards.as_deref().unwrap_or_default();
    let planned = |n: usize| plan.get(n).filter(|_| plan.len() == cards.len());
    let record = |(n, card): (usize, &ShownCard)| NetworkCard {
        network: planned(n)
            .map(|plan| plan.network.clone())
            .or_else(|| card.network.clone()),
        network_ref: card.network_ref.clone(),
    };
    cards
        .iter()
        .enumerate()
        .map(record)
        .take(MOST_CARDS)
        .collect()
}

/// In what the network cards of a VM differ from those on record. Without a record nothing does.
#[must_use]
pub fn drift(made: &[NetworkCard], shown: &ShownHardware) -> Vec<HardwareDifference> {
    let Some(cards) = shown.cards.as_deref().filter(|_| !made.is_empty()) else {
        return Vec::new();
    };
    let name = |card: &ShownCard| words(card.network_ref.as_deref(), card.network.as_deref(), made);
    let recorded =
        |card: &NetworkCard| words(card.network_ref.as_deref(), card.network.as_deref(), made);
    if made.len() != cards.len() {
        let want = count(made.iter().map(recorded));
        return vec![difference(
            "networkCards",
            want,
            count(cards.iter().map(name)),
        )];
    }
    let several = made.len() > 1;
    let field = |field: &str, n: usize| match several {
        true => format!("{field} of card {}", n + 1),
        false => field.to_owned(),
    };
    let mut rows = Vec::new();
    for (n, (made, shown)) in made.iter().zip(cards).enumerate() {
        let both = made.network_ref.as_ref().zip(shown.network_ref.as_ref());
        if both.is_some_and(|(want, have)| want != have) {
            let field = field("network", n);
            rows.push(difference(&field, recorded(made), name(shown)));
        }
        let have = match shown.link {
            None | Some(Link::Connected) => continue,
            Some(Link::OnlyNow) => "connected, but not at the next power-on",
            Some(Link::Disconnected) => "disconnected",
        };
        let field = field("networkConnection", n);
        rows.push(difference(&field, "connected".to_owned(), have.to_owned()));
    }
    rows
}

/// A network for people: its name and its id, as far as they are known. A card on record may know the name of the id.
fn words(id: Option<&str>, name: Option<&str>, made: &[NetworkCard]) -> String {
    let same = |card: &&NetworkCard| id.is_some() && card.network_ref.as_deref() == id;
    let on_record = || made.iter().find(same)?.network.as_deref();
    match (name.or_else(on_record), id) {
        (Some(name), Some(id)) => format!("{name} ({id})"),
        (Some(word), None) | (None, Some(word)) => word.to_owned(),
        (None, None) => "unknown".to_owned(),
    }
}

/// How many cards, and their networks.
fn count(networks: impl ExactSizeIterator<Item = String>) -> String {
    let number = networks.len();
    let names: Vec<String> = networks.take(MOST_CARDS).collect();
    match number {
        0 => "0".to_owned(),
        _ => format!("{number}: {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with;

    /// A change of what vCenter shows, and the phrase about it.
    type Case = (fn(&mut Vec<ShownCard>), &'static str);

    fn card(id: &str, name: Option<&str>) -> ShownCard {
        ShownCard {
            network_ref: Some(id.to_owned()),
            network: name.map(str::to_owned),
            link: Some(Link::Connected),
        }
    }

    fn showing(cards: Vec<ShownCard>) -> ShownHardware {
        ShownHardware {
            cards: Some(cards),
            ..ShownHardware::default()
        }
    }

    fn phrase(made: &[NetworkCard], cards: Vec<ShownCard>) -> String {
        crate::domain::template::explain(&drift(made, &showing(cards)))
    }

    #[test]
    fn a_card_is_recorded_with_the_name_of_the_spec_and_the_id_of_vcenter() {
        let shown = showing(vec![card("dvportgroup-31", None)]);
        let made = record(&nics("workers"), &shown);
        assert_eq!(made[0].network.as_deref(), Some("workers"));
        assert_eq!(made[0].network_ref.as_deref(), Some("dvportgroup-31"));
        let two = showing(vec![card("network-7", Some("VM Network")), card("x", None)]);
        let names: Vec<_> = record(&nics("workers"), &two)
            .into_iter()
            .map(|card| card.network)
            .collect();
        assert_eq!(names, [Some("VM Network".to_owned()), None]);
        let many = showing(vec![card("x", None); 12]);
        assert_eq!(record(&[], &many).len(), MOST_CARDS);
        assert_eq!(record(&nics("workers"), &ShownHardware::default()), []);
    }

    #[test]
    fn each_change_of_the_only_card_is_named() {
        let as_made = || vec![card("network-7", Some("VM Network"))];
        let made = record(&nics("VM Network"), &showing(as_made()));
        let cases: [Case; 9] = [
            (|_| {}, ""),
            (|c| c[0].network = Some("renamed".to_owned()), ""),
            (|c| c[0].network_ref = None, ""),
            (|c| c[0].link = None, ""),
            (
                |c| c[0] = card("dvportgroup-9", None),
                "network: want VM Network (network-7), have dvportgroup-9",
            ),
            (
                |c| c[0].link = Some(Link::Disconnected),
                "networkConnection: want connected, have disconnected",
            ),
            (
                |c| c[0].link = Some(Link::OnlyNow),
                "networkConnection: want connected, have connected, but not at the next power-on",
            ),
            (
                |c| c.clear(),
                "networkCards: want 1: VM Network (network-7), have 0",
            ),
            (
                |c| c.push(card("network-8", Some("other"))),
                "networkCards: want 1: VM Network (network-7), have 2: VM Network (network-7), other (network-8)",
            ),
        ];
        for (change, words) in cases {
            assert_eq!(phrase(&made, with(as_made(), change)), words);
        }
    }

    #[test]
    fn cards_are_compared_in_their_order() {
        let as_made = || vec![card("dvportgroup-1", None), card("dvportgroup-2", None)];
        let made = with(record(&[], &showing(as_made())), |made| {
            made[1].network = Some("storage".to_owned());
        });
        assert_eq!(phrase(&made, as_made()), "");
        let swapped = with(as_made(), |cards| cards.swap(0, 1));
        assert_eq!(
            phrase(&made, swapped),
            "network of card 1: want dvportgroup-1, have storage (dvportgroup-2); \
             network of card 2: want storage (dvportgroup-2), have dvportgroup-1"
        );
    }

    #[test]
    fn without_a_record_or_a_look_nothing_differs() {
        let other = || vec![card("network-8", None)];
        assert_eq!(phrase(&[], other()), "");
        let made = record(&[], &showing(other()));
        assert_eq!(drift(&made, &ShownHardware::default()), []);
        let unknown = [NetworkCard::default()];
        assert_eq!(phrase(&unknown, other()), "");
    }
}
