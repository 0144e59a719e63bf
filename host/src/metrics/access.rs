//! Access control of `ebb metrics`: by the host name in a request, and by its user or its token.

use super::peer;
use crate::failure::Failure;
use crate::system::open_regular;
use crate::text::{one_line, printable};
use std::io::Read;
use std::net::{IpAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The minimum length of a token in bytes. Shorter ones can be guessed.
const TOKEN_MIN: usize = 16;
/// The maximum length of a token in bytes.
const TOKEN_MAX: usize = 4096;
/// The maximum number of characters of a request that an answer repeats.
const SHOWN_MAX: usize = 100;

/// The rules of `ebb metrics` by which requests are answered or refused.
#[derive(Debug)]
pub(super) struct AccessControl {
    /// Host names that a request may use in addition to this machine's own.
    pub(super) hosts: Vec<String>,
    /// Whether requests of any user are answered.
    pub(super) any_user: bool,
    /// The token that admits any user, or `None` if there is none.
    pub(super) token: Option<Token>,
    /// The user whose guests are served. This user needs no token.
    pub(super) user: u32,
}

/// The answer to an HTTP request that is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    /// The HTTP status line, without the version.
    pub(super) status: &'static str,
    /// The text for the client.
    pub(super) text: String,
}

impl AccessControl {
    /// Returns whether a client whose user has the number `user` needs no token: it is the served
    /// user or root, or any user is admitted. `None` stands for an unknown user.
    pub(super) fn is_trusted(&self, user: Option<u32>) -> bool {
        self.any_user || user.is_some_and(|user| user == self.user || user == 0)
    }

    /// Returns the number of the local user at the other end of `stream`. Returns `None` if that
    /// user is unknown. Returns `None` without a look if any user is admitted.
    pub(super) fn user_of(&self, stream: &TcpStream) -> Option<u32> {
        if self.any_user {
            return None;
        }
        peer::user_of(stream)
    }

    /// Checks whether `request` may be answered: its `Host` header names this machine, and its
    /// client is trusted or sends the token. `at` is the local address that it came to, and `user`
    /// the client's user.
    ///
    /// # Errors
    /// The answer to send instead: 400 if the request does not name one host, 421 for a foreign
    /// host name, 401 if the token is missing or wrong, and 403 if there is no token.
    pub(super) fn admit(
        &self,
        request: &httparse::Request<'_, '_>,
        at: IpAddr,
        user: Option<u32>,
    ) -> Result<(), Refusal> {
        self.admit_host(request, at)?;
        let authorization = values(request, "authorization").next();
        let has_token = self
            .token
            .as_ref()
            .is_some_and(|token| authorization.is_some_and(|value| token.is_in(value)));
        if has_token || self.is_trusted(user) {
            return Ok(());
        }
        let who = user.map_or_else(
            || "another user or machine".to_owned(),
            |user| format!("user {user}"),
        );
        let own = self.user;
        Err(if self.token.is_some() {
            Refusal {
                status: "401 Unauthorized",
                text: format!(
                    "this is served to user {own}, and to others with the token of --token-file; \
                     {who} did not send it\n"
                ),
            }
        } else {
            Refusal {
                status: "403 Forbidden",
                text: format!(
                    "this is served to user {own}, not to {who}; --token-file FILE or --any-user \
                     lets others in\n"
                ),
            }
        })
    }

    /// Refuses a request whose `Host` header names another machine.
    ///
    /// A page in a browser can change the address of its own name to this one (DNS rebinding) and
    /// then send requests here. The browser would take the answer for the page's own. But it sends
    /// the page's name.
    fn admit_host(&self, request: &httparse::Request<'_, '_>, at: IpAddr) -> Result<(), Refusal> {
        let mut hosts = values(request, "host");
        let (host, second) = (hosts.next(), hosts.next());
        let host = match (host, second, request.version) {
            (Some(host), None, _) => String::from_utf8_lossy(host),
            // Browsers do not use HTTP/1.0.
            (None, _, Some(0)) => return Ok(()),
            _ => {
                return Err(Refusal {
                    status: "400 Bad Request",
                    text: "a request names one host\n".to_owned(),
                });
            }
        };
        let name = without_port(&host);
        let is_own = match name.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(ip) => ip.to_canonical().is_loopback() || ip.to_canonical() == at.to_canonical(),
            Err(_) => name.eq_ignore_ascii_case("localhost"),
        };
        let listed = || {
            self.hosts
                .iter()
                .any(|host| name.eq_ignore_ascii_case(host))
        };
        if is_own || listed() {
            return Ok(());
        }
        let shown: String = printable(name).chars().take(SHOWN_MAX).collect();
        Err(Refusal {
            status: "421 Misdirected Request",
            text: format!("this does not answer as `{shown}`; --host NAME adds a name\n"),
        })
    }
}

/// Returns the values of all headers called `name`.
fn values<'a>(
    request: &'a httparse::Request<'_, '_>,
    name: &'a str,
) -> impl Iterator<Item = &'a [u8]> {
    let headers = request.headers.iter();
    headers
        .filter(move |header| header.name.eq_ignore_ascii_case(name))
        .map(|header| header.value.trim_ascii())
}

/// Returns the name in `NAME:PORT` or `[::1]:PORT`. Returns `host` unchanged if it has no port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|byte| byte.is_ascii_digit())
                && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => host,
    }
}

/// The secret of `--token-file` that admits users other than the served one.
pub(super) struct Token(Vec<u8>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Reads the token in the file `path`, without white space around it.
    ///
    /// # Errors
    /// [`Failure::Usage`] if the file cannot be read or is not a regular file, or all users may
    /// read or write it. Also if its token has fewer than 16 or more than 4096 bytes, or is not
    /// printable ASCII.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let bad = |why: String| Failure::Usage(format!("--token-file {}: {why}", one_line(path)));
        let failed = |error: std::io::Error| bad(error.to_string());
        let file = open_regular(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.mode() & 0o006 != 0 {
            return Err(bad("all users may read or write it; chmod o= it".into()));
        }
        let mut bytes = Vec::new();
        let most = TOKEN_MAX as u64 + 2;
        file.take(most).read_to_end(&mut bytes).map_err(failed)?;
        let token = bytes.trim_ascii();
        if !(TOKEN_MIN..=TOKEN_MAX).contains(&token.len()) {
            return Err(bad(format!("a token has {TOKEN_MIN} to {TOKEN_MAX} bytes")));
        }
        if !token.iter().all(u8::is_ascii_graphic) {
            return Err(bad("a token has letters, digits and signs of ASCII".into()));
        }
        Ok(Self(token.to_vec()))
    }

    /// Returns whether the header value is `Bearer` and this token. The time does not depend on
    /// where they differ.
    fn is_in(&self, value: &[u8]) -> bool {
        let Some((scheme, given)) = value.split_at_checked(7) else {
            return false;
        };
        let given = given.trim_ascii();
        let same = given.len() == self.0.len();
        let differ = given
            .iter()
            .zip(&self.0)
            .fold(0, |sum, (a, b)| sum | (a ^ b));
        scheme.eq_ignore_ascii_case(b"bearer ") && same && differ == 0
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// Returns rules that only admit the user with the number `user` and root, and the host name
    /// `metrics.example`.
    pub(in super::super) fn access(user: u32) -> AccessControl {
        AccessControl {
            hosts: vec!["metrics.example".into()],
            any_user: false,
            token: None,
            user,
        }
    }

    fn admit(access: &AccessControl, head: &str, user: Option<u32>) -> Result<(), Refusal> {
        let head = format!("GET /metrics {head}\r\n\r\n");
        let mut headers = [httparse::EMPTY_HEADER; 8];
        let mut request = httparse::Request::new(&mut headers);
        assert!(request.parse(head.as_bytes()).unwrap().is_complete());
        access.admit(&request, "192.0.2.7".parse().unwrap(), user)
    }

    #[test]
    fn a_token_file_that_is_a_pipe_is_not_waited_for() {
        let name = format!("ebb-token-pipe-{}", std::process::id());
        let pipe = std::env::temp_dir().join(name);
        let kind = rustix::fs::FileType::Fifo;
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        let error = Token::read(&pipe).unwrap_err().to_string();
        fs::remove_file(&pipe).unwrap();
        assert!(error.ends_with("it is not a file"), "{error}");
    }

    #[test]
    fn only_this_machines_names_are_answered() {
        let access = access(1000);
        for host in [
            "localhost",
            "LOCALHOST:9732",
            "127.0.0.1:9732",
            "127.1.2.3",
            "[::1]:9732",
            "[::1]",
            "192.0.2.7:80",
            "[::ffff:192.0.2.7]",
            "metrics.example:9732",
            "Metrics.Example",
        ] {
            let head = format!("HTTP/1.1\r\nHost: {host}");
            assert_eq!(admit(&access, &head, Some(1000)), Ok(()), "{host}");
        }
        for host in [
            "evil.example:9732",
            "192.0.2.8",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.example#localhost",
            "[::2]",
            "0.0.0.0:9732",
            "",
        ] {
            let head = format!("HTTP/1.1\r\nHost: {host}");
            let refusal = admit(&access, &head, Some(1000)).unwrap_err();
            assert!(refusal.status.starts_with("421"), "{host}: {refusal:?}");
            let name = without_port(host);
            assert!(
                refusal.text.contains(&format!("`{name}`")),
                "{host}: {refusal:?}"
            );
        }
        let two = "HTTP/1.1\r\nHost: localhost\r\nHost: evil.example";
        for head in ["HTTP/1.1", two] {
            let refusal = admit(&access, head, Some(1000)).unwrap_err();
            assert!(refusal.status.starts_with("400"), "{refusal:?}");
        }
        assert_eq!(admit(&access, "HTTP/1.0", Some(1000)), Ok(()));
        let long = format!("HTTP/1.1\r\nHost: {}", "n".repeat(5000));
        assert!(admit(&access, &long, Some(1000)).unwrap_err().text.len() < 200);
    }

    #[test]
    fn other_users_are_refused_unless_they_are_let_in() {
        let mut access = access(1000);
        let head = "HTTP/1.1\r\nHost: localhost";
        assert_eq!(admit(&access, head, Some(1000)), Ok(()));
        assert_eq!(admit(&access, head, Some(0)), Ok(()));
        let refusal = admit(&access, head, Some(1001)).unwrap_err();
        assert!(refusal.status.starts_with("403"), "{refusal:?}");
        assert!(refusal.text.contains("not to user 1001"), "{refusal:?}");
        assert!(
            admit(&access, head, None)
                .unwrap_err()
                .status
                .starts_with("403")
        );

        access.token = Some(Token(b"0123456789abcdef".to_vec()));
        let with = |value: &str| format!("{head}\r\nAuthorization: {value}");
        assert_eq!(
            admit(&access, head, Some(1000)),
            Ok(()),
            "no token is needed"
        );
        for value in ["Bearer 0123456789abcdef", "bearer   0123456789abcdef "] {
            assert_eq!(admit(&access, &with(value), Some(1001)), Ok(()), "{value}");
            assert_eq!(admit(&access, &with(value), None), Ok(()), "{value}");
        }
        for value in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer 0123456789abcdeX",
            "Bearer 0123456789abcdef0",
            "Bearer 0123456789abcde",
            "Basic 0123456789abcdef",
        ] {
            let refusal = admit(&access, &with(value), Some(1001)).unwrap_err();
            assert!(refusal.status.starts_with("401"), "{value}: {refusal:?}");
        }
        // A token does not replace the check of the host name.
        let evil = "HTTP/1.1\r\nHost: evil\r\nAuthorization: Bearer 0123456789abcdef";
        assert!(
            admit(&access, evil, None)
                .unwrap_err()
                .status
                .starts_with("421")
        );

        access.any_user = true;
        assert_eq!(admit(&access, head, Some(1001)), Ok(()));
    }

    #[test]
    fn tokens_are_read_and_bad_files_refused_by_name() {
        let path = std::env::temp_dir().join(format!("ebb-token-{}", std::process::id()));
        let read = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Token::read(&path).map_err(|error| error.to_string())
        };
        assert_eq!(
            read(" 0123456789abcdef\n", 0o640).unwrap().0,
            b"0123456789abcdef"
        );
        for (text, mode, why) in [
            ("0123456789abcdef", 0o644, "all users may read"),
            ("0123456789abcde", 0o600, "16 to 4096 bytes"),
            (&"x".repeat(5000), 0o600, "16 to 4096 bytes"),
            ("0123456789 abcdef", 0o600, "letters"),
        ] {
            let error = read(text, mode).unwrap_err();
            assert!(
                error.contains(why) && error.contains("--token-file"),
                "{error}"
            );
        }
        fs::remove_file(&path).unwrap();
        assert!(
            Token::read(&path)
                .unwrap_err()
                .to_string()
                .contains("--token-file")
        );
    }
}
