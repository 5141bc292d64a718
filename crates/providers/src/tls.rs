//! Whom to believe when a connection is encrypted: the same for deliveries and for mail.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;

/// Why there can be no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the root certificates cannot be used: {0}")]
    Roots(String),
    #[error("TLS cannot be set up (does the machine have root certificates installed?)")]
    Setup(#[source] rustls::Error),
}

/// Believes the given certificates (PEM), or else the machine's.
pub(crate) fn client(roots_pem: Option<&[u8]>) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?;
    let Some(pem) = roots_pem else {
        return Ok(builder
            .with_platform_verifier()
            .map_err(TlsError::Setup)?
            .with_no_client_auth());
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| TlsError::Roots(error.to_string()))?;
        roots.add(certificate).map_err(|error| TlsError::Roots(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(TlsError::Roots("no certificate in it".to_owned()));
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
