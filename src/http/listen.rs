//! Listening for agents that come all at once.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// Connections that may wait to be accepted, as far as the system lets them (`net.core.somaxconn`). The usual 128 are
/// fewer than the sessions that start together: the system then drops what else comes in, and some of it for good.
const WAITING: u32 = 4096;

/// Listens on an address.
pub fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A port whose last connections still close can be had again at once.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(WAITING)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::listen;

    #[tokio::test]
    async fn many_come_in_before_one_is_accepted() {
        let room = std::fs::read_to_string("/proc/sys/net/core/somaxconn");
        let room = room.ok().and_then(|room| room.trim().parse().ok()).unwrap_or(128);
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = listener.local_addr().unwrap();
        // Whom the system drops comes again a second later.
        let limit = Duration::from_millis(900);
        let connected = (0..600_usize.min(room))
            .take_while(|_| TcpStream::connect_timeout(&addr, limit).is_ok())
            .count();
        assert_eq!(connected, 600.min(room));
    }

    #[tokio::test]
    async fn an_address_is_had_once() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let again = listen(listener.local_addr().unwrap());
        assert_eq!(again.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    }
}
