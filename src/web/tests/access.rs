//! Who is answered, and what it sees.

use super::*;

#[tokio::test]
async fn a_loopback_address_answers_only_by_its_own_name() {
    let server = server(&World::serving(), false).await;
    for path in [
        "/",
        "/topology.json",
        "/events",
        "/machine/demo/w-1",
        "/actors",
    ] {
        let answer = server.web.handle(local(path)).await;
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        for host in ["evil.example:8088", "127.0.0.1.evil.example", "10.0.0.1"] {
            let answer = server.web.handle(asked(path, &[(HOST, host)])).await;
            assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{path} {host}");
        }
        let answer = server.web.handle(asked(path, &[])).await;
        assert_eq!(
            answer.status(),
            StatusCode::FORBIDDEN,
            "{path} without a host"
        );
    }
    let answer = server.web.handle(local("/secrets")).await;
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn only_get_is_answered() {
    let server = server(&World::serving(), false).await;
    for method in [
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::OPTIONS,
        Method::HEAD,
    ] {
        for path in ["/", "/topology.json", "/actors/kill"] {
            let mut asked = local(path);
            asked.method = method.clone();
            let answer = server.web.handle(asked).await;
            assert_eq!(
                answer.status(),
                StatusCode::METHOD_NOT_ALLOWED,
                "{method} {path}"
            );
            assert_eq!(answer.headers()[ALLOW], "GET");
        }
    }
}

#[tokio::test]
async fn killing_stays_behind_the_debug_endpoint_and_its_header() {
    let server = server(&World::serving(), false).await;
    let kill = |headers: &[(HeaderName, &str)], query: &str| {
        let mut asked = asked(&format!("/actors/kill{query}"), headers);
        asked.method = Method::POST;
        debug::handle(server.web.clone(), asked)
    };
    let marked = (HeaderName::from_static(debug::KILL_HEADER), "true");
    let own = (HOST, "localhost:6060");
    let all = "?which=*";
    for (headers, query, status) in [
        (vec![own.clone(), marked.clone()], all, StatusCode::OK),
        (vec![own.clone()], all, StatusCode::FORBIDDEN),
        (vec![own, marked.clone()], "", StatusCode::BAD_REQUEST),
        (
            vec![(HOST, "evil.example"), marked.clone()],
            all,
            StatusCode::METHOD_NOT_ALLOWED,
        ),
        (vec![marked], all, StatusCode::METHOD_NOT_ALLOWED),
    ] {
        let answer = kill(&headers, query).await;
        assert_eq!(answer.status(), status, "{headers:?} {query}");
    }
    let answer = debug::handle(server.web.clone(), local("/actors")).await;
    assert_eq!(read(answer).await.as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn another_address_needs_a_token_that_may_list_pools() {
    let server = server(&two_tenants(), true).await;
    let bare = |path| asked(path, &[(HOST, "forge.example")]);
    let answer = server.web.handle(bare("/")).await;
    assert_eq!(answer.status(), StatusCode::OK, "the page has no data");
    for path in [
        "/topology.json",
        "/events",
        "/machine/demo/w-1",
        "/actors",
        "/secrets",
    ] {
        let answer = server.web.handle(bare(path)).await;
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{path}");
        assert!(answer.headers().contains_key(WWW_AUTHENTICATE));
        for (token, status) in [
            ("bad", StatusCode::UNAUTHORIZED),
            ("nobody", StatusCode::FORBIDDEN),
            ("down", StatusCode::SERVICE_UNAVAILABLE),
        ] {
            let answer = server.web.handle(by(token, path)).await;
            assert_eq!(answer.status(), status, "{token} {path}");
        }
    }
    let basic = asked(
        "/topology.json",
        &[(AUTHORIZATION, "Basic YWRtaW46YWRtaW4=")],
    );
    let answer = server.web.handle(basic).await;
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    let answer = server.web.handle(by("nobody", "/topology.json")).await;
    let said = String::from_utf8(body(answer).await.to_vec()).expect("text");
    assert!(
        said.contains(
            "nobody may list vsphereagentpools.agent-forge.containeroo.ch in no namespace"
        ),
        "{said}"
    );
    let long = by(&"x".repeat(20_000), "/topology.json");
    assert_eq!(
        server.web.handle(long).await.status(),
        StatusCode::UNAUTHORIZED
    );
}

#[tokio::test]
async fn each_user_sees_the_namespaces_in_which_it_may_list_pools() {
    let server = server(&two_tenants(), true).await;
    for (token, pools, actors) in [
        (
            "admin",
            vec!["demo/workers", "other/workers"],
            vec!["pool/demo/workers", "vm/other/w-1", "sessions"],
        ),
        ("demo", vec!["demo/workers"], vec!["pool/demo/workers"]),
        ("other", vec!["other/workers"], vec!["vm/other/w-1"]),
    ] {
        let shown = read(server.web.handle(by(token, "/topology.json")).await).await;
        let seen: Vec<&Value> = shown["clusters"]
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|c| c["nodePools"].as_array().into_iter().flatten())
            .flat_map(|n| n["pools"].as_array().into_iter().flatten())
            .map(|p| &p["name"])
            .collect();
        assert_eq!(seen, pools, "{token}");
        let shown = read(server.web.handle(by(token, "/actors")).await).await;
        let seen: Vec<&Value> = shown
            .as_array()
            .into_iter()
            .flatten()
            .map(|a| &a["name"])
            .collect();
        assert_eq!(seen, actors, "{token}");
    }
    for (token, path, status) in [
        ("admin", "/machine/demo/w-1", StatusCode::OK),
        ("demo", "/machine/demo/w-1", StatusCode::OK),
        ("other", "/machine/demo/w-1", StatusCode::NOT_FOUND),
        // An AgentMachine is in another namespace than its pool, whose rights count.
        (
            "demo",
            "/machine/demo-demo/w-1?kind=AgentMachine",
            StatusCode::OK,
        ),
        (
            "other",
            "/machine/demo-demo/w-1?kind=AgentMachine",
            StatusCode::NOT_FOUND,
        ),
    ] {
        let answer = server.web.handle(by(token, path)).await;
        assert_eq!(answer.status(), status, "{token} {path}");
    }
}

#[tokio::test]
async fn a_refused_pool_opens_no_machine_of_others() {
    for (admits, status) in [
        (Some("other"), StatusCode::OK),
        (None, StatusCode::NOT_FOUND),
    ] {
        let mut world = World::waiting();
        world.pool["metadata"]["namespace"] = json!("other");
        world.admits = admits;
        let server = server(&world, true).await;
        let asked = by("other", "/machine/demo-demo/w-1?kind=AgentMachine");
        let answer = server.web.handle(asked).await;
        assert_eq!(answer.status(), status, "{admits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_tokens_of_one_address_are_limited_and_who_was_accepted_is_not() {
    use crate::web::access::attempts::{MOST, REMEMBERED};
    let server = server(&two_tenants(), true).await;
    let look = async |token: &str, peer: u8| {
        let mut asked = by(token, "/topology.json");
        asked.peer = std::net::Ipv4Addr::new(10, 0, 0, peer).into();
        server.web.handle(asked).await
    };
    assert_eq!(look("demo", 1).await.status(), StatusCode::OK);
    for n in 0..MOST {
        // The played API server accepts no token of that name.
        let answer = look(&format!("bad-{n}"), 1).await;
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{n}");
    }
    let refused = look("bad-more", 1).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        refused.headers()[RETRY_AFTER],
        REMEMBERED.as_secs().to_string()
    );
    let said = String::from_utf8(body(refused).await.to_vec()).expect("text");
    assert!(
        said.contains("the address 10.0.0.1: try again in 60 s"),
        "{said}"
    );
    assert_eq!(server.users.times("user bad-more"), 0, "no review");
    assert_eq!(
        look("other", 2).await.status(),
        StatusCode::OK,
        "another address"
    );
    // A viewer behind the same proxy stays, also after its answer is forgotten.
    advance(KEPT).await;
    assert_eq!(look("demo", 1).await.status(), StatusCode::OK);
    assert_eq!(server.users.times("user demo"), 2);
    advance(REMEMBERED).await;
    assert_eq!(look("bad-more", 1).await.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_the_api_server_counts_for_a_short_time() {
    let server = server(&two_tenants(), true).await;
    let look = |token: &str| server.web.handle(by(token, "/topology.json"));
    for _ in 0..3 {
        look("demo").await;
        look("bad").await;
        look("down").await;
    }
    let times = |what: &str| server.users.times(what);
    assert_eq!((times("user demo"), times("demo in *")), (1, 1));
    assert_eq!((times("demo in demo"), times("demo in other")), (1, 1));
    assert_eq!(times("user bad"), 1, "a refusal is kept as well");
    assert_eq!(times("user down"), 3, "no answer is not an answer");
    advance(KEPT).await;
    look("demo").await;
    assert_eq!((times("user demo"), times("demo in demo")), (2, 2));
}
