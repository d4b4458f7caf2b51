CREATE TABLE workspaces (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    uid TEXT NOT NULL,
    name TEXT NOT NULL,
    metadata TEXT DEFAULT '{}' NOT NULL,
    configuration TEXT DEFAULT '{}' NOT NULL,
    created_at INTEGER NOT NULL,
    generation INTEGER DEFAULT '0' NOT NULL,
    UNIQUE (name)
);

CREATE TABLE message_vectors (
    workspace_id INTEGER NOT NULL,
    message_id INTEGER NOT NULL,
    piece INTEGER NOT NULL,
    session_id INTEGER NOT NULL,
    peer_id INTEGER NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (workspace_id, message_id, piece)
) WITHOUT ROWID;

CREATE INDEX message_vectors_by_session ON message_vectors (session_id);

CREATE TABLE jobs (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    unit TEXT NOT NULL,
    workspace_id INTEGER NOT NULL,
    session_id INTEGER,
    sender_id INTEGER,
    payload TEXT NOT NULL,
    state TEXT DEFAULT 'pending' NOT NULL,
    attempts INTEGER DEFAULT '0' NOT NULL,
    not_before INTEGER DEFAULT '0' NOT NULL,
    owner TEXT,
    lease_until INTEGER,
    error TEXT,
    created_at INTEGER NOT NULL,
    finished_at INTEGER
);

CREATE INDEX jobs_open_by_unit ON jobs (unit, id) WHERE state IN ('pending', 'running');

CREATE INDEX jobs_open ON jobs (id) WHERE state IN ('pending', 'running');

CREATE INDEX jobs_by_workspace ON jobs (workspace_id, state, session_id);

CREATE INDEX jobs_finished ON jobs (finished_at) WHERE finished_at IS NOT NULL;

CREATE TABLE job_observers (
    job_id INTEGER NOT NULL,
    peer_id INTEGER NOT NULL,
    PRIMARY KEY (job_id, peer_id)
) WITHOUT ROWID;

CREATE INDEX job_observers_by_peer ON job_observers (peer_id);

CREATE TABLE peers (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    uid TEXT NOT NULL,
    workspace_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    kind TEXT DEFAULT 'peer' NOT NULL,
    metadata TEXT DEFAULT '{}' NOT NULL,
    configuration TEXT DEFAULT '{}' NOT NULL,
    created_at INTEGER NOT NULL,
    CONSTRAINT peers_by_name UNIQUE (workspace_id, name),
    FOREIGN KEY(workspace_id) REFERENCES workspaces (id)
);

CREATE INDEX peers_in_order ON peers (workspace_id, kind, created_at, id);

CREATE TABLE sessions (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    uid TEXT NOT NULL,
    workspace_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    is_active BOOLEAN DEFAULT '1' NOT NULL,
    metadata TEXT DEFAULT '{}' NOT NULL,
    configuration TEXT DEFAULT '{}' NOT NULL,
    message_count INTEGER DEFAULT '0' NOT NULL,
    created_at INTEGER NOT NULL,
    CONSTRAINT sessions_by_name UNIQUE (workspace_id, name),
    FOREIGN KEY(workspace_id) REFERENCES workspaces (id)
);

CREATE INDEX sessions_in_order ON sessions (workspace_id, is_active, created_at, id);

CREATE TABLE webhooks (
    id INTEGER NOT NULL,
    public_id TEXT NOT NULL,
    workspace_id INTEGER NOT NULL,
    url TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT webhooks_by_url UNIQUE (workspace_id, url),
    UNIQUE (public_id),
    FOREIGN KEY(workspace_id) REFERENCES workspaces (id)
);

CREATE TABLE memberships (
    id INTEGER NOT NULL,
    session_id INTEGER NOT NULL,
    peer_id INTEGER NOT NULL,
    observe_me BOOLEAN,
    observe_others BOOLEAN,
    joined_seq INTEGER NOT NULL,
    left_seq INTEGER,
    joined_at INTEGER NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(session_id) REFERENCES sessions (id),
    FOREIGN KEY(peer_id) REFERENCES peers (id)
);

CREATE INDEX memberships_by_session ON memberships (session_id, peer_id);

CREATE UNIQUE INDEX memberships_active ON memberships (session_id, peer_id) WHERE left_seq IS NULL;

CREATE INDEX memberships_by_peer ON memberships (peer_id, session_id);

CREATE TABLE messages (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    public_id TEXT NOT NULL,
    workspace_id INTEGER NOT NULL,
    session_id INTEGER NOT NULL,
    peer_id INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    content TEXT NOT NULL,
    metadata TEXT DEFAULT '{}' NOT NULL,
    token_count INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    file TEXT,
    UNIQUE (public_id),
    FOREIGN KEY(workspace_id) REFERENCES workspaces (id),
    FOREIGN KEY(session_id) REFERENCES sessions (id),
    FOREIGN KEY(peer_id) REFERENCES peers (id)
);

CREATE INDEX messages_by_workspace ON messages (workspace_id, id);

CREATE UNIQUE INDEX messages_in_order ON messages (session_id, seq);

CREATE INDEX messages_by_peer ON messages (peer_id, id);

CREATE TABLE collections (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    workspace_id INTEGER NOT NULL,
    observer_id INTEGER NOT NULL,
    observed_id INTEGER NOT NULL,
    generation INTEGER DEFAULT '0' NOT NULL,
    CONSTRAINT collections_by_pair UNIQUE (observer_id, observed_id),
    FOREIGN KEY(workspace_id) REFERENCES workspaces (id),
    FOREIGN KEY(observer_id) REFERENCES peers (id),
    FOREIGN KEY(observed_id) REFERENCES peers (id)
);

CREATE INDEX collections_by_workspace ON collections (workspace_id);

CREATE TABLE summaries (
    session_id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    content TEXT NOT NULL,
    message_id INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    token_count INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (session_id, kind),
    FOREIGN KEY(session_id) REFERENCES sessions (id)
);

CREATE TABLE scope_sessions (
    scope_id INTEGER NOT NULL,
    session_id INTEGER NOT NULL,
    state TEXT DEFAULT 'pending' NOT NULL,
    copied INTEGER,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (scope_id, session_id),
    FOREIGN KEY(scope_id) REFERENCES peers (id),
    FOREIGN KEY(session_id) REFERENCES sessions (id)
);

CREATE INDEX scope_sessions_by_session ON scope_sessions (session_id);

CREATE TABLE conclusions (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    public_id TEXT NOT NULL,
    workspace_id INTEGER NOT NULL,
    collection_id INTEGER NOT NULL,
    session_id INTEGER,
    level TEXT DEFAULT 'explicit' NOT NULL,
    content TEXT NOT NULL,
    digest TEXT NOT NULL,
    source_ids TEXT,
    message_ids TEXT,
    times_derived INTEGER DEFAULT '1' NOT NULL,
    metadata TEXT DEFAULT '{}' NOT NULL,
    created_at INTEGER NOT NULL,
    vector BLOB NOT NULL,
    deleted_at INTEGER,
    UNIQUE (public_id),
    FOREIGN KEY(workspace_id) REFERENCES workspaces (id),
    FOREIGN KEY(collection_id) REFERENCES collections (id),
    FOREIGN KEY(session_id) REFERENCES sessions (id)
);

CREATE INDEX conclusions_by_workspace ON conclusions (workspace_id, id) WHERE deleted_at IS NULL;

CREATE INDEX conclusions_by_session ON conclusions (session_id);

CREATE INDEX conclusions_live ON conclusions (collection_id, id) WHERE deleted_at IS NULL;

CREATE INDEX conclusions_frequent ON conclusions (collection_id, times_derived, id) WHERE deleted_at IS NULL;

CREATE INDEX conclusions_by_digest ON conclusions (collection_id, digest);

CREATE TABLE cards (
    collection_id INTEGER NOT NULL,
    lines TEXT NOT NULL,
    written_by TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (collection_id),
    FOREIGN KEY(collection_id) REFERENCES collections (id)
);

CREATE VIEW message_texts AS
SELECT id, 'w' || workspace_id || ' s' || session_id || ' p' || peer_id AS scope, content FROM messages;

CREATE VIRTUAL TABLE message_index USING fts5(
    scope, content, content = 'message_texts', content_rowid = 'id', tokenize = 'porter unicode61 remove_diacritics 2'
);
