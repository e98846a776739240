-- The preferences of one person on one machine, shared by every coffer that
-- runs there: the newest schema, whole. prefs/migrate.go brings older files up
-- to it. Nothing that an upstream said is kept here except its keys.
--
-- Times are RFC 3339 in UTC with milliseconds, so that they sort as text.
-- The tables are not STRICT: people look at this file with whatever sqlite3
-- they have, and one older than 3.37 cannot open a file that has such a table.

-- One row for each capability that was ever listed or chosen.
CREATE TABLE mcp_capability_preferences (
  resource_id     TEXT NOT NULL CHECK (resource_id <> ''), -- the server's key in the config
  capability_type TEXT NOT NULL CHECK (capability_type IN ('tool', 'resource', 'resource_template', 'prompt')),
  capability_key  TEXT NOT NULL,                           -- the upstream's own name or URI
  enabled         INTEGER NOT NULL CHECK (enabled IN (0, 1)),
  first_seen_at   TEXT CHECK (first_seen_at LIKE '____-__-__T__:__:__.___Z'), -- NULL: not listed yet
  last_seen_at    TEXT CHECK (last_seen_at LIKE '____-__-__T__:__:__.___Z'),
  PRIMARY KEY (resource_id, capability_type, capability_key),
  CHECK ((first_seen_at IS NULL) = (last_seen_at IS NULL))
) WITHOUT ROWID;

-- Which of those rows a person set by hand, and when last.
CREATE TABLE mcp_capability_choices (
  resource_id     TEXT NOT NULL,
  capability_type TEXT NOT NULL,
  capability_key  TEXT NOT NULL,
  set_at          TEXT NOT NULL CHECK (set_at LIKE '____-__-__T__:__:__.___Z'),
  PRIMARY KEY (resource_id, capability_type, capability_key),
  FOREIGN KEY (resource_id, capability_type, capability_key)
    REFERENCES mcp_capability_preferences ON DELETE CASCADE
) WITHOUT ROWID;

-- How often a person asked for a fresh list of a server, and how often for a
-- fresh connection to it: a running coffer acts when a number has grown.
CREATE TABLE mcp_refresh_generations (
  resource_id TEXT NOT NULL PRIMARY KEY CHECK (resource_id <> ''),
  refresh     INTEGER NOT NULL DEFAULT 0 CHECK (refresh >= 0),
  reconnect   INTEGER NOT NULL DEFAULT 0 CHECK (reconnect >= 0)
) WITHOUT ROWID;
