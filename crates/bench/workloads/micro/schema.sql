-- Micro loads: one thing at a time.

CREATE TABLE point (
    id int PRIMARY KEY,
    v int NOT NULL,
    filler char(80) NOT NULL
);

CREATE TABLE counter (
    id int PRIMARY KEY,
    n bigint NOT NULL
);

CREATE TABLE branch (
    id int PRIMARY KEY,
    balance bigint NOT NULL
);

CREATE TABLE teller (
    id int PRIMARY KEY,
    branch_id int NOT NULL,
    balance bigint NOT NULL
);

CREATE TABLE account (
    id int PRIMARY KEY,
    branch_id int NOT NULL,
    balance bigint NOT NULL,
    filler char(84) NOT NULL
);

CREATE TABLE history (
    teller_id int NOT NULL,
    branch_id int NOT NULL,
    account_id int NOT NULL,
    delta bigint NOT NULL,
    at timestamp NOT NULL
);

CREATE TABLE large (
    id int PRIMARY KEY,
    revision bigint NOT NULL,
    body text NOT NULL
);

CREATE TABLE bulk (
    client int NOT NULL,
    batch int NOT NULL,
    line int NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (client, batch, line)
);
