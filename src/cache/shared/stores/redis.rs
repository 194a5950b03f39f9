//! Redis, Valkey and what else speaks their protocol.

use std::time::Duration;

use redis::{Client, Connection, ConnectionInfo, IntoConnectionInfo as _};

use crate::cache::shared::store::{Store, StoreError, TooLong};
use crate::fork_guard::{self, Mutex};

const CONNECT: Duration = Duration::from_secs(10);
/// For how long a server may do nothing.
const SILENCE: Duration = Duration::from_secs(30);

/// Connections that are kept while nobody uses them.
const IDLE: usize = 8;

pub(super) struct RedisStore {
    client: Client,
    shown: String,
    prefix: String,
    /// Connections that nobody uses, and the generation of the process that made them.
    idle: Mutex<(u32, Vec<Connection>)>,
}

impl RedisStore {
    pub(super) fn new(url: &str) -> Result<Self, StoreError> {
        let (url, query) = url.split_once('?').unwrap_or((url, ""));
        let prefix = query.split('&').find_map(|pair| pair.strip_prefix("prefix=")).unwrap_or_default().to_owned();
        let info: ConnectionInfo = url.into_connection_info()?;
        let shown = format!("redis://{}/{}", info.addr(), info.redis_settings().db());
        Ok(Self { client: Client::open(info)?, shown, prefix, idle: Mutex::new((0, Vec::new())) })
    }

    /// Calls the server, by a new connection where an idle one was closed.
    fn call<T>(&self, call: impl Fn(&mut Connection) -> redis::RedisResult<T>) -> Result<T, StoreError> {
        if let Some(mut connection) = self.take() {
            match call(&mut connection) {
                Ok(value) => {
                    self.give(connection);
                    return Ok(value);
                }
                Err(error) if error.is_connection_dropped() || error.is_io_error() && !error.is_timeout() => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut connection = self.client.get_connection_with_timeout(CONNECT)?;
        connection.set_read_timeout(Some(SILENCE))?;
        connection.set_write_timeout(Some(SILENCE))?;
        let value = call(&mut connection)?;
        self.give(connection);
        Ok(value)
    }

    fn take(&self) -> Option<Connection> {
        let mut idle = self.idle.lock();
        if idle.0 != fork_guard::generation() {
            // Those of the parent, which goes on using them.
            *idle = (fork_guard::generation(), Vec::new());
        }
        idle.1.pop()
    }

    fn give(&self, connection: Connection) {
        let mut idle = self.idle.lock();
        if idle.0 == fork_guard::generation() && idle.1.len() < IDLE {
            idle.1.push(connection);
        }
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl Store for RedisStore {
    fn get(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, StoreError> {
        // One byte more shows that there are more.
        let value: Vec<u8> = self.call(|to| redis::cmd("GETRANGE").arg(self.key(name)).arg(0).arg(most).query(to))?;
        match value.len() as u64 {
            0 => Ok(None),
            length if length > most => Err(TooLong { most }.into()),
            _ => Ok(Some(value)),
        }
    }

    fn put_if_absent(&self, name: &str, value: &[u8]) -> Result<bool, StoreError> {
        let key = self.key(name);
        if self.call(|to| redis::cmd("EXISTS").arg(&key).query(to))? {
            return Ok(false);
        }
        let stored: Option<String> = self.call(|to| redis::cmd("SET").arg(&key).arg(value).arg("NX").query(to))?;
        Ok(stored.is_some())
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.call(|to| redis::cmd("DEL").arg(self.key(name)).query::<()>(to))
    }

    fn describe(&self) -> String {
        self.shown.clone()
    }
}
