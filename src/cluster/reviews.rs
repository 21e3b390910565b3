//! Asks the API server who a token belongs to, and what that user may do.

use agent_forge_crds::VsphereAgentPool;
use async_trait::async_trait;
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{
        NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
    },
};
use kube::{Api, Client, Resource as _, api::PostParams};

/// What a user may do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// List VsphereAgentPools in that namespace. Without a namespace: in all of them.
    ListPools(Option<String>),
    /// `get` a path that is no resource, such as `/metrics`.
    Get(&'static str),
}

/// Answers of the API server about other users.
#[async_trait]
pub trait Reviews: Send + Sync {
    /// The user that the token belongs to; `None` if the API server does not accept it.
    ///
    /// # Errors
    /// The API server did not answer, or does not let this operator ask.
    async fn user(&self, token: &str) -> anyhow::Result<Option<UserInfo>>;

    /// Whether the user has that right.
    ///
    /// # Errors
    /// The API server did not answer, or does not let this operator ask.
    async fn may(&self, user: &UserInfo, right: &Right) -> anyhow::Result<bool>;
}

/// [`Reviews`] of a real API server.
pub struct ApiReviews(Client);

impl ApiReviews {
    /// Asks with this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self(client)
    }
}

#[async_trait]
impl Reviews for ApiReviews {
    #[expect(
        clippy::disallowed_methods,
        reason = "the API server answers a review and stores nothing"
    )]
    async fn user(&self, token: &str) -> anyhow::Result<Option<UserInfo>> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let api: Api<TokenReview> = Api::all(self.0.clone());
        let answer = api.create(&PostParams::default(), &review).await?;
        let status = answer.status.unwrap_or_default();
        let accepted = status.authenticated == Some(true);
        Ok(status.user.filter(|_| accepted))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the API server answers a review and stores nothing"
    )]
    async fn may(&self, user: &UserInfo, right: &Right) -> anyhow::Result<bool> {
        let (resource_attributes, non_resource_attributes) = match right {
            Right::ListPools(namespace) => (
                Some(ResourceAttributes {
                    group: Some(VsphereAgentPool::group(&()).into_owned()),
                    resource: Some(VsphereAgentPool::plural(&()).into_owned()),
                    namespace: namespace.clone(),
                    verb: Some("list".to_owned()),
                    ..ResourceAttributes::default()
                }),
                None,
            ),
            Right::Get(path) => (
                None,
                Some(NonResourceAttributes {
                    path: Some((*path).to_owned()),
                    verb: Some("get".to_owned()),
                }),
            ),
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username.clone(),
                uid: user.uid.clone(),
                groups: user.groups.clone(),
                extra: user.extra.clone(),
                resource_attributes,
                non_resource_attributes,
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.0.clone());
        let answer = api.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}
