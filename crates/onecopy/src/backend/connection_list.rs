//! The connections that sessions have to one server, so that they can be cut when the server is given up.
//!
//! A server that hangs does not close its connections, so a session that waits for its reply would wait for ever. Cutting
//! the socket from outside wakes the session, and it finds the connection lost, as if the server had died. So a session
//! learns of every loss in one way, and has nothing else to check while it relays.
//!
//! Invariant: an entry lives exactly as long as its connection, and holds the socket open no longer than that.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::net::{Shutdown, shutdown};

use super::Connection;

#[derive(Debug, Default)]
struct Known {
    next: u64,
    sockets: BTreeMap<u64, OwnedFd>,
}

/// The connections to one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionList(Arc<Mutex<Known>>);

/// The entry of one connection; it is taken out when this is dropped.
#[derive(Debug)]
pub(crate) struct ListedConnection {
    list: ConnectionList,
    number: u64,
}

impl ConnectionList {
    /// Enters a connection.
    pub(crate) fn enter(&self, connection: &Connection) -> std::io::Result<ListedConnection> {
        let socket = connection.socket()?;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.next += 1;
        let number = known.next;
        known.sockets.insert(number, socket);
        Ok(ListedConnection { list: self.clone(), number })
    }

    /// Cuts every connection that is there now; how many that were.
    pub(crate) fn cut(&self) -> usize {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One that its server has closed already cannot be cut any more, which is as well.
        known.sockets.values().filter(|socket| shutdown(socket, Shutdown::Both).is_ok()).count()
    }
}

impl Drop for ListedConnection {
    fn drop(&mut self) {
        self.list.0.lock().unwrap_or_else(PoisonError::into_inner).sockets.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::address::{Address, Stream};
    use std::time::Duration;
    use tokio::net::UnixListener;

    #[tokio::test]
    async fn a_session_that_waits_for_a_silent_server_is_woken() {
        let folder = std::env::temp_dir().join(format!("onecopy-connection-list-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let listener = UnixListener::bind(folder.join(".s.PGSQL.5432")).unwrap();
        let address = Address::Unix { socket_dir: folder.clone(), port: 5432 };
        let (stream, _server) =
            tokio::join!(Stream::connect(&address), async { listener.accept().await.unwrap() });
        let mut connection = Connection::of(stream.unwrap());
        let list = ConnectionList::default();
        let listed = list.enter(&connection).unwrap();
        let waiting = tokio::spawn(async move { connection.fill().await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!waiting.is_finished());
        assert_eq!(list.cut(), 1);
        assert!(waiting.await.unwrap().is_err(), "the end of the stream is an error");
        drop(listed);
        assert_eq!(list.cut(), 0);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
