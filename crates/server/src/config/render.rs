//! Settings of renders, typed.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;
use tashika_domain::render::RenderRules;
use tashika_providers::webhook::Scheme;
use url::Url;

use super::webhooks::SourceConfig;
use super::{Reader, some};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenderProvider {
    Sandbox,
    Shotstack,
    Http,
}

#[derive(Clone, Debug)]
pub struct RenderConfig {
    pub provider: RenderProvider,
    pub url: Option<Url>,
    pub token: Option<SecretString>,
    pub timeout: Duration,
    pub template_file: Option<PathBuf>,
    pub rules: RenderRules,
    /// Where Shotstack calls back: up to the render's id.
    pub callbacks: Option<String>,
    pub output_dir: Option<PathBuf>,
    pub output_max: u64,
    /// How long renders are kept, once they have ended.
    pub keep: Duration,
}

pub(super) fn renders(
    read: &Reader,
    sources: &[SourceConfig],
    public_url: Option<&Url>,
    keep: Duration,
) -> RenderConfig {
    let name = read.text("RENDER_PROVIDER");
    let provider = match name.as_str() {
        "shotstack" => RenderProvider::Shotstack,
        "http" => RenderProvider::Http,
        _ => RenderProvider::Sandbox,
    };
    let source = sources.iter().find(|source| matches!(source.scheme, Scheme::Shotstack));
    let callbacks = match (provider, public_url, source) {
        (RenderProvider::Shotstack, Some(url), Some(source)) => {
            let base = url.as_str().trim_end_matches('/');
            Some(format!("{base}/webhooks/{}/renders", source.name))
        }
        _ => None,
    };
    let output_dir = some(read.text("RENDER_OUTPUT_DIR")).map(PathBuf::from);
    // Without a callback nobody will ever tell; waiting for one would only lose time.
    let doubt = if callbacks.is_some() { read.span("RENDER_DOUBT_SEC") } else { Duration::ZERO };
    RenderConfig {
        provider,
        url: read.url("RENDER_URL"),
        token: some(read.text("RENDER_TOKEN")).map(SecretString::from),
        timeout: read.span("RENDER_TIMEOUT_MS"),
        template_file: some(read.text("RENDER_TEMPLATE_FILE")).map(PathBuf::from),
        rules: RenderRules {
            provider: name,
            attempts: u32::try_from(read.int("RENDER_ATTEMPTS")).unwrap_or(u32::MAX),
            pause: read.span("RENDER_RETRY_SEC"),
            poll: read.span("RENDER_POLL_SEC"),
            attempt_limit: read.span("RENDER_ATTEMPT_SEC"),
            doubt,
            give_up: read.span("RENDER_GIVE_UP_SEC"),
            copies: output_dir.is_some(),
            keep,
        },
        callbacks,
        output_dir,
        output_max: read.int("RENDER_OUTPUT_MAX_BYTES"),
        keep: Duration::from_secs_f64(read.float("RENDER_KEEP_DAYS") * 86_400.0),
    }
}
