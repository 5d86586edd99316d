CREATE TABLE commits(number INTEGER PRIMARY KEY AUTOINCREMENT, step INTEGER NOT NULL,
                     version INTEGER NOT NULL, loss REAL, tokens INTEGER NOT NULL,
                     gradient_norm REAL, clip_scale REAL, learning_rate REAL,
                     skipped INTEGER NOT NULL, group_digests TEXT NOT NULL, wall_seconds REAL,
                     era INTEGER NOT NULL DEFAULT 0, updates INTEGER NOT NULL DEFAULT 0)
CREATE TABLE events(number INTEGER PRIMARY KEY AUTOINCREMENT, wall_seconds REAL, kind TEXT NOT NULL,
                    detail TEXT NOT NULL, level TEXT NOT NULL DEFAULT 'info')
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID
CREATE TABLE seats(peer INTEGER NOT NULL, incarnation INTEGER NOT NULL, stage INTEGER NOT NULL,
                   address TEXT NOT NULL, state TEXT NOT NULL, key TEXT NOT NULL DEFAULT '',
                   reach TEXT NOT NULL DEFAULT '', name TEXT NOT NULL DEFAULT '',
                   PRIMARY KEY(peer, incarnation))
CREATE TABLE sqlite_sequence(name,seq)
6
1398230090
