//! Servers that a test plays on loopback. They end with the runtime of the test.

use std::{convert::Infallible, net::SocketAddr};

use hyper::{
    Request, Response,
    body::{Body, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

/// Treats each client like this. Returns the address.
pub async fn listen<F>(treat: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a free port");
    let address = listener.local_addr().expect("its number");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(treat(stream));
        }
    });
    address
}

/// Answers each HTTP request like this. Returns the address.
pub async fn answering<F, B>(
    answer: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
) -> SocketAddr
where
    F: Future<Output = Response<B>> + Send,
    B: Body<Data: Send, Error = Infallible> + Send + 'static,
{
    listen(move |stream| {
        let answer = answer.clone();
        let service = service_fn(move |request| {
            let answered = answer(request);
            async move { Ok::<_, Infallible>(answered.await) }
        });
        async move {
            // A client that has read enough disconnects.
            let stream = TokioIo::new(stream);
            let served = http1::Builder::new().serve_connection(stream, service);
            let _ = served.await;
        }
    })
    .await
}
