//! TLS as services need it: certificates from PEM files, clients checked against an authority where one is named.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

/// Where a server's certificates are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM: the server's certificate, then those up to the authority.
    pub certificate: PathBuf,
    /// PEM: its private key.
    pub key: PathBuf,
    /// PEM: the authorities that clients' certificates must come from. A client may also show none. `None`: clients are not asked.
    pub client_authorities: Option<PathBuf>,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{path} cannot be read as PEM")]
    Read {
        path: PathBuf,
        #[source]
        source: pem::Error,
    },
    #[error("{path} has no certificate")]
    Empty { path: PathBuf },
    #[error("the certificate and its key cannot be used")]
    Server(#[source] rustls::Error),
    #[error("{path} has an authority that cannot be used")]
    Authority {
        path: PathBuf,
        #[source]
        source: rustls::Error,
    },
    #[error("clients cannot be checked")]
    Verifier(#[from] VerifierBuilderError),
}

/// Reads the files and makes what accepts connections. `protocols`: what is offered by ALPN, best first, e.g. `h2`.
pub fn acceptor(files: &TlsFiles, protocols: &[&str]) -> Result<TlsAcceptor, TlsError> {
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Server)?;
    let builder = match &files.client_authorities {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(path)?), provider);
            builder.with_client_cert_verifier(verifier.allow_unauthenticated().build()?)
        }
    };
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|source| read(&files.key, source))?;
    let mut config = builder
        .with_single_cert(certificates(&files.certificate)?, key)
        .map_err(TlsError::Server)?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The authorities of a PEM file.
pub fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|source| TlsError::Authority {
            path: path.to_owned(),
            source,
        })?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_file_iter(path).map_err(|source| read(path, source))?;
    let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(|source| read(path, source))?;
    if certificates.is_empty() {
        return Err(TlsError::Empty { path: path.to_owned() });
    }
    Ok(certificates)
}

fn read(path: &Path, source: pem::Error) -> TlsError {
    TlsError::Read {
        path: path.to_owned(),
        source,
    }
}
