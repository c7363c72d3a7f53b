-- Onecopy's objects in a server's database. The agent runs this as superuser in one transaction, and may run it
-- again. Rust code replaces @CLUSTER@, @SESSION@, @DDL@ and @APPLY@ by tokens that are no secrets, and the lines that
-- consist of SANDBOX, CARRIAGE, STAND_INS and OBJECT_IDS between at-signs by the files of these names.

-- A second run must pass our own guard against schema changes, and need not report that objects exist.
SET LOCAL session_replication_role = replica;
SET LOCAL onecopy.via = '@APPLY@';
SET LOCAL client_min_messages = warning;

CREATE SCHEMA IF NOT EXISTS onecopy;
REVOKE ALL ON SCHEMA onecopy FROM PUBLIC;
GRANT USAGE ON SCHEMA onecopy TO PUBLIC;
-- No role has USAGE on this schema, so messages always show the capture function's name with its schema. That proves
-- that a message is ours.
CREATE SCHEMA IF NOT EXISTS onecopy_capture;
REVOKE ALL ON SCHEMA onecopy_capture FROM PUBLIC;

CREATE TABLE IF NOT EXISTS onecopy.cluster (id text NOT NULL);
REVOKE ALL ON onecopy.cluster FROM PUBLIC;
INSERT INTO onecopy.cluster SELECT '@CLUSTER@' WHERE NOT EXISTS (SELECT FROM onecopy.cluster);

-- Sessions insert here with their clients' rights. So a row counts only with its proof, which only Onecopy can make.
CREATE TABLE IF NOT EXISTS onecopy.applied (
    epoch int4, n int8, nonce int8, proof int8 NOT NULL, PRIMARY KEY (epoch, n, nonce));
ALTER TABLE onecopy.applied ADD COLUMN IF NOT EXISTS proof int8 NOT NULL DEFAULT 0;
ALTER TABLE onecopy.applied ALTER COLUMN proof DROP DEFAULT;
REVOKE ALL ON onecopy.applied FROM PUBLIC;
GRANT INSERT ON onecopy.applied TO PUBLIC;

-- Sequences give the numbers, because a counter row would stay locked until the schema change commits.
CREATE SEQUENCE IF NOT EXISTS onecopy_capture.table_numbers AS int4;

-- Onecopy's numbers for types and relations, which match the OIDs of one server with those of another.
CREATE TABLE IF NOT EXISTS onecopy_capture.names (id int4 PRIMARY KEY, is_type boolean NOT NULL, object oid NOT NULL);
CREATE SEQUENCE IF NOT EXISTS onecopy_capture.name_numbers AS int4;

-- Permanent sequences, each with Onecopy's number. `caches`: sessions preallocate values. `rules`: increment, least
-- and greatest value, whether it cycles, and start.
CREATE TABLE IF NOT EXISTS onecopy_capture.sequences (
    id int4 PRIMARY KEY, relation oid NOT NULL UNIQUE, caches boolean NOT NULL, rules text NOT NULL);
CREATE SEQUENCE IF NOT EXISTS onecopy_capture.sequence_numbers AS int4;
-- Earlier releases counted in tables.
DO $$
DECLARE
    kind text;
BEGIN
    FOREACH kind IN ARRAY ARRAY['table', 'name', 'sequence'] LOOP
        IF to_regclass(format('onecopy_capture.next_%s', kind)) IS NOT NULL THEN
            EXECUTE format('SELECT setval(''onecopy_capture.%1$s_numbers'', id, false) FROM onecopy_capture.next_%1$s', kind);
            EXECUTE format('DROP TABLE onecopy_capture.next_%s', kind);
        END IF;
    END LOOP;
END $$;
-- The marks of sequences: how far their holders may have come, by the records that were applied here.
CREATE TABLE IF NOT EXISTS onecopy_capture.marks (
    sequence int4, holder int4, generation int8 NOT NULL, value int8 NOT NULL, called boolean NOT NULL,
    descends boolean NOT NULL, PRIMARY KEY (sequence, holder));
-- Sequences that stand in a range leased to this replica, with their bounds in the schema.
CREATE TABLE IF NOT EXISTS onecopy_capture.leased (sequence int4 PRIMARY KEY, least int8 NOT NULL, greatest int8 NOT NULL);
-- Counts the revocations of all leases. A lease takes effect only if this number has not changed since.
CREATE TABLE IF NOT EXISTS onecopy_capture.stint (n int8 NOT NULL);
INSERT INTO onecopy_capture.stint SELECT 1 WHERE NOT EXISTS (SELECT FROM onecopy_capture.stint);
-- Crash recovery empties this table. As long as it has a row, no sequence has lost values.
CREATE UNLOGGED TABLE IF NOT EXISTS onecopy_capture.unbroken (since timestamptz NOT NULL);

-- The secret of Onecopy's present start, and the backends that have proven to be Onecopy's (`capture/vouch.rs`).
CREATE UNLOGGED TABLE IF NOT EXISTS onecopy_capture.voucher (secret bytea NOT NULL);
CREATE UNLOGGED TABLE IF NOT EXISTS onecopy_capture.vouched (pid int4 PRIMARY KEY, started timestamptz NOT NULL);
ALTER TABLE onecopy_capture.vouched ADD COLUMN IF NOT EXISTS crew int4;
-- The crews whose node is lost (`shipping/orphan.rs`).
CREATE UNLOGGED TABLE IF NOT EXISTS onecopy_capture.lost_crews (crew int4 PRIMARY KEY);
REVOKE ALL ON onecopy_capture.voucher, onecopy_capture.vouched, onecopy_capture.lost_crews FROM PUBLIC;

-- Whether this backend has proven to be Onecopy's. A setting that only a superuser can set records it. RESET ALL may
-- have removed the setting; then the table tells.
CREATE OR REPLACE FUNCTION onecopy.is_vouched() RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM onecopy_capture.vouched v
            JOIN pg_stat_get_activity(pg_backend_pid()) AS own ON own.backend_start = v.started
            WHERE v.pid = pg_backend_pid()) THEN
        RETURN false;
    END IF;
    PERFORM set_config('backtrace_functions', '@SESSION@', false);
    RETURN true;
END $$;

CREATE OR REPLACE FUNCTION onecopy.vouch(ticket text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    started timestamptz := (SELECT own.backend_start FROM pg_stat_get_activity(pg_backend_pid()) AS own);
BEGIN
    IF NOT EXISTS (SELECT FROM onecopy_capture.voucher WHERE ticket = encode(sha256(convert_to(concat_ws(' ',
            encode(secret, 'hex'), pg_backend_pid(), encode(timestamptz_send(started), 'hex')), 'UTF8')), 'hex')) THEN
        RAISE EXCEPTION 'this connection was not opened by Onecopy' USING ERRCODE = '42501';
    END IF;
    INSERT INTO onecopy_capture.vouched (pid, started) VALUES (pg_backend_pid(), started)
        ON CONFLICT (pid) DO UPDATE SET started = EXCLUDED.started, crew = NULL;
    PERFORM set_config('backtrace_functions', '@SESSION@', false);
END $$;

-- Notes the node to which this backend of Onecopy's belongs, so that the backends of a lost node can be told from others.
CREATE OR REPLACE FUNCTION onecopy.belong(crew int4) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT onecopy.is_vouched() THEN
        RAISE EXCEPTION 'this connection was not opened by Onecopy' USING ERRCODE = '42501';
    END IF;
    LOCK TABLE onecopy_capture.lost_crews IN ROW EXCLUSIVE MODE;
    IF EXISTS (SELECT FROM onecopy_capture.lost_crews l WHERE l.crew = belong.crew) THEN
        RAISE EXCEPTION 'the node of this connection has lost its link to the leader' USING ERRCODE = '57P01';
    END IF;
    UPDATE onecopy_capture.vouched v SET crew = belong.crew WHERE v.pid = pg_backend_pid();
END $$;

-- Turns the server's own search for deadlocks off, on a connection of Onecopy's: a scheduler that sees the waits at all
-- servers chooses the transaction that ends (`c_jdbc/waits.rs`).
CREATE OR REPLACE FUNCTION onecopy.leave_deadlocks() RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT onecopy.is_vouched() THEN
        RAISE EXCEPTION 'this connection was not opened by Onecopy' USING ERRCODE = '42501';
    END IF;
    PERFORM set_config('deadlock_timeout', '2147483647', false);
END $$;

-- @SANDBOX@

-- @CARRIAGE@

-- @STAND_INS@

-- Every name is qualified, because the function runs with the writer's search path, where a client could hide a
-- function that forges rows. INFO reaches the client's connection regardless of client_min_messages. The function
-- reads no table, and being STABLE it takes no snapshot for each expression.
CREATE OR REPLACE FUNCTION onecopy_capture.cap() RETURNS trigger LANGUAGE plpgsql STABLE AS $$
DECLARE
    old_image pg_catalog.bytea;
    new_image pg_catalog.bytea;
BEGIN
    IF pg_catalog.current_setting('backtrace_functions') OPERATOR(pg_catalog.=) '@SESSION@' OR onecopy.is_vouched() THEN
        -- Some columns travel as text. The other arguments list all columns as expressions, for new and for old rows.
        IF TG_NARGS OPERATOR(pg_catalog.>) 1 THEN
            IF TG_OP OPERATOR(pg_catalog.<>) 'INSERT' THEN
                EXECUTE pg_catalog.concat('SELECT pg_catalog.record_send(ROW(', TG_ARGV[2], '))') INTO old_image USING OLD;
            END IF;
            IF TG_OP OPERATOR(pg_catalog.<>) 'DELETE' THEN
                EXECUTE pg_catalog.concat('SELECT pg_catalog.record_send(ROW(', TG_ARGV[1], '))') INTO new_image USING NEW;
            END IF;
            IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN
                RAISE INFO '%|U|%|%|%', TG_ARGV[0], NEW.xmin, old_image, new_image USING ERRCODE = 'OC001';
            ELSIF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN
                RAISE INFO '%|I|%|%', TG_ARGV[0], NEW.xmin, new_image USING ERRCODE = 'OC001';
            ELSE
                RAISE INFO '%|D|%|%', TG_ARGV[0], OLD.xmax, old_image USING ERRCODE = 'OC001';
            END IF;
        ELSIF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN
            RAISE INFO '%|U|%|%|%', TG_ARGV[0], NEW.xmin, pg_catalog.record_send(OLD), pg_catalog.record_send(NEW)
                USING ERRCODE = 'OC001';
        ELSIF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN
            RAISE INFO '%|I|%|%', TG_ARGV[0], NEW.xmin, pg_catalog.record_send(NEW) USING ERRCODE = 'OC001';
        ELSE
            RAISE INFO '%|D|%|%', TG_ARGV[0], OLD.xmax, pg_catalog.record_send(OLD) USING ERRCODE = 'OC001';
        END IF;
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'this server is a replica of a Onecopy cluster'
        USING ERRCODE = '25006', HINT = 'Write through the cluster''s own address.';
END $$;

-- Captures all rows of one INSERT or COPY, a few thousand bytes a message, at a fifth of the cost of a message for
-- each row. The rows of a transition table do not show which (sub)transaction wrote them. Only inside a function does
-- that matter. There it is the newest subtransaction that this session's transaction still has: each holds a lock on
-- its own id until it ends, and all newer ones have become part of the present one. At every replica the applier runs
-- this for each INSERT, so the function checks for it first and creates variables later.
CREATE OR REPLACE FUNCTION onecopy_capture.cap_inserted() RETURNS trigger LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF pg_catalog.current_setting('onecopy.via', true) OPERATOR(pg_catalog.=) '@APPLY@'
            AND pg_catalog.current_setting('session_replication_role') OPERATOR(pg_catalog.=) 'replica' THEN
        RETURN NULL;
    ELSIF pg_catalog.current_setting('backtrace_functions') OPERATOR(pg_catalog.=) '@SESSION@' OR onecopy.is_vouched() THEN
        DECLARE
            context pg_catalog.text;
            writer pg_catalog.xid := '0';
            image pg_catalog.bytea;
            images pg_catalog.bytea := '';
        BEGIN
            GET DIAGNOSTICS context = PG_CONTEXT;
            IF pg_catalog.strpos(context, E'\n') OPERATOR(pg_catalog.>) 0 THEN
                SELECT l.transactionid INTO writer FROM pg_catalog.pg_locks l
                WHERE l.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()
                    AND l.locktype OPERATOR(pg_catalog.=) 'transactionid' AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock'
                ORDER BY pg_catalog.age(l.transactionid) LIMIT 1;
            END IF;
            FOR image IN SELECT pg_catalog.record_send("!new".*) FROM "!new" LOOP
                IF pg_catalog.length(images) OPERATOR(pg_catalog.>) 8000 THEN
                    RAISE INFO '%|B|%|%', TG_ARGV[0], writer, images USING ERRCODE = 'OC001';
                    images := '';
                END IF;
                images := images OPERATOR(pg_catalog.||) image;
            END LOOP;
            IF pg_catalog.length(images) OPERATOR(pg_catalog.>) 0 THEN
                RAISE INFO '%|B|%|%', TG_ARGV[0], writer, images USING ERRCODE = 'OC001';
            END IF;
            RETURN NULL;
        END;
    END IF;
    RAISE EXCEPTION 'this server is a replica of a Onecopy cluster'
        USING ERRCODE = '25006', HINT = 'Write through the cluster''s own address.';
END $$;

-- No row shows the subtransaction that truncates, so the message has the whole transaction's id. The session knows
-- TRUNCATE statements by their text, and those inside a function by the second line of the context.
CREATE OR REPLACE FUNCTION onecopy_capture.cap_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_catalog.current_setting('backtrace_functions') OPERATOR(pg_catalog.=) '@SESSION@' OR onecopy.is_vouched() THEN
        RAISE INFO '%|T|%', TG_ARGV[0], pg_catalog.xid(pg_catalog.pg_current_xact_id()) USING ERRCODE = 'OC001';
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'this server is a replica of a Onecopy cluster'
        USING ERRCODE = '25006', HINT = 'Write through the cluster''s own address.';
END $$;

-- The status of transactions by their 64-bit ids, in the order of the argument. '?' means that the server does not
-- know, as for a future id. The inner block keeps an error from failing the session's transaction.
CREATE OR REPLACE FUNCTION onecopy.xact_status(ids bigint[]) RETURNS text[]
LANGUAGE plpgsql STRICT SECURITY INVOKER AS $$
DECLARE
    id pg_catalog.int8;
    known pg_catalog.text;
    statuses pg_catalog.text[] := '{}';
BEGIN
    FOREACH id IN ARRAY ids LOOP
        BEGIN
            known := pg_catalog.pg_xact_status(id::pg_catalog.text::pg_catalog.xid8);
        EXCEPTION WHEN invalid_parameter_value THEN
            known := NULL;
        END;
        statuses := pg_catalog.array_append(statuses, COALESCE(known, '?'));
    END LOOP;
    RETURN statuses;
END $$;

-- How each table is captured, and whether it has exactly our triggers. Rows of one INSERT are reported at its end in
-- one message. Exceptions: tables where a user's trigger could change them before, tables with columns that travel as
-- text, and partitions (statements reach their rows by another table's name). Trigger types are bits: 1 for rows; 4,
-- 8, 16 and 32 for INSERT, DELETE, UPDATE and TRUNCATE. One query handles all tables, because it runs after every
-- schema change, and after every call of a user's function that wrote. PL/pgSQL keeps its plan, which costs ten times
-- what its execution does.
CREATE OR REPLACE FUNCTION onecopy_capture.captured(relations oid[]) RETURNS TABLE (relation oid, at_once boolean, is_right boolean)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY WITH carried AS MATERIALIZED (
        SELECT typ FROM onecopy_capture.carried_types(relations)
    ), textual(relation) AS MATERIALIZED (
        SELECT DISTINCT a.attrelid FROM pg_attribute a JOIN carried ON carried.typ = a.atttypid
        WHERE a.attrelid = ANY (relations) AND a.attnum > 0 AND NOT a.attisdropped
    ), present AS MATERIALIZED (
        SELECT g.tgrelid, p.pronamespace = 'onecopy_capture'::regnamespace AS is_ours, g.tgisinternal,
            format('%s %s %s %s', g.tgname, g.tgenabled, g.tgtype, p.proname) AS made,
            g.tgname IN ('!onecopy', '!onecopy_replica') AS has_columns, encode(g.tgargs, 'escape') AS arguments
        FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid WHERE g.tgrelid = ANY (relations)
    ), kind AS MATERIALIZED (
        SELECT c.oid, NOT c.relispartition AND c.oid NOT IN (SELECT textual.relation FROM textual)
            AND c.oid NOT IN (SELECT tgrelid FROM present WHERE NOT is_ours AND NOT tgisinternal) AS at_once
        FROM pg_class c WHERE c.oid = ANY (relations)
    ), ours AS (
        SELECT tgrelid, string_agg(made, ', ' ORDER BY made COLLATE "C") AS made,
            bool_or(has_columns AND split_part(arguments, E'\\000', 2) || split_part(arguments, E'\\000', 3) <> CASE
                WHEN tgrelid IN (SELECT textual.relation FROM textual)
                THEN encode(convert_to(onecopy_capture.captured_columns(tgrelid, '$1', false)
                    || onecopy_capture.captured_columns(tgrelid, '$1', true), 'UTF8'), 'escape')
                ELSE '' END) AS differs
        FROM present WHERE is_ours GROUP BY tgrelid
    )
    SELECT kind.oid, kind.at_once, NOT COALESCE(ours.differs, true) AND ours.made = CASE WHEN kind.at_once
        THEN '!onecopy O 25 cap, !onecopy_insert A 4 cap_inserted, !onecopy_replica R 25 cap, !onecopy_truncate A 32 cap_truncate'
        ELSE '!onecopy O 29 cap, !onecopy_replica R 29 cap, !onecopy_truncate A 32 cap_truncate' END
    FROM kind LEFT JOIN ours ON ours.tgrelid = kind.oid;
END $$;

-- Writes of the open transaction that none of our triggers saw, found by its locks. NULL: it has no id, so it wrote
-- nothing. '': it made no such write. With an ordered schema change it may write shared catalogues.
CREATE OR REPLACE FUNCTION onecopy.residue(has_ddl boolean) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    written text;
BEGIN
    IF pg_current_xact_id_if_assigned() IS NULL THEN
        RETURN NULL;
    END IF;
    WITH locked AS MATERIALIZED (
        SELECT c.oid, c.relisshared, c.relname
        FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.mode IN ('RowExclusiveLock', 'AccessExclusiveLock')
          AND l.database IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
          AND CASE WHEN c.relisshared THEN NOT has_ddl AND c.relkind = 'r' AND l.mode = 'RowExclusiveLock'
                   ELSE c.relkind IN ('r', 'f') AND c.relpersistence <> 't'
                        AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'onecopy', 'onecopy_capture') END
    )
    SELECT CASE WHEN locked.relisshared THEN format('a change of %s inside a function or DO block', locked.relname)
                ELSE format('a write to table %s that is not captured', locked.oid::regclass) END INTO written
    FROM locked LEFT JOIN onecopy_capture.captured(ARRAY(SELECT oid FROM locked WHERE NOT relisshared)) AS state
        ON state.relation = locked.oid
    WHERE state.is_right IS NOT TRUE
    ORDER BY 1 LIMIT 1;
    IF written IS NULL AND EXISTS (SELECT FROM pg_largeobject_metadata) THEN
        written := 'making a large object';
    END IF;
    -- If ON COMMIT empties one of them, the server detects the violation only inside COMMIT.
    IF written IS NULL AND EXISTS (SELECT FROM pg_constraint
            WHERE contype = 'f' AND connamespace = pg_my_temp_schema() AND conrelid <> confrelid) THEN
        written := 'a foreign key between temporary tables';
    END IF;
    RETURN COALESCE(written, '');
END $$;

-- The state of sequences that this session's transaction has touched, with rolled-back subtransactions: among those
-- in the argument, or among all. It counts all values that the transaction has read, regardless of rollbacks. Values
-- from a session's cache are not read from the sequence, but leave its lock. Returns one text for each sequence,
-- joined by semicolons: number, value, called, increment, min, max, cycle, start. It runs in each transaction that
-- draws, and setting a search path would double its cost. So each name is qualified, types included, because a caller
-- could shadow them.
CREATE OR REPLACE FUNCTION onecopy.sequences(ids int4[]) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $$
DECLARE
    one pg_catalog.int4;
    target pg_catalog.oid;
    caches pg_catalog.bool;
    rules pg_catalog.text;
    value pg_catalog.int8;
    called pg_catalog.bool;
    states pg_catalog.text := '';
BEGIN
    IF ids IS NULL THEN
        ids := ARRAY(SELECT s.id FROM onecopy_capture.sequences s
            WHERE s.caches OR pg_catalog.pg_stat_get_xact_blocks_fetched(s.relation) OPERATOR(pg_catalog.<>) 0
                OR pg_catalog.current_setting('track_counts') OPERATOR(pg_catalog.<>) 'on'
            ORDER BY s.id);
    END IF;
    FOREACH one IN ARRAY ids LOOP
        SELECT s.relation, s.caches, s.rules INTO target, caches, rules FROM onecopy_capture.sequences s
            WHERE s.id OPERATOR(pg_catalog.=) one;
        CONTINUE WHEN NOT FOUND;
        IF pg_catalog.pg_stat_get_xact_blocks_fetched(target) OPERATOR(pg_catalog.=) 0
            AND pg_catalog.current_setting('track_counts') OPERATOR(pg_catalog.=) 'on' THEN
            CONTINUE WHEN NOT caches OR NOT EXISTS (SELECT FROM pg_catalog.pg_locks l
                WHERE l.relation OPERATOR(pg_catalog.=) target
                    AND l.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid());
        END IF;
        value := pg_catalog.pg_sequence_last_value(target);
        called := true;
        IF value IS NULL THEN
            EXECUTE pg_catalog.format('SELECT last_value, is_called FROM %s', target::pg_catalog.regclass)
                INTO value, called;
        END IF;
        states := pg_catalog.concat(states, ';', one, ' ', value, ' ', called, ' ', rules);
    END LOOP;
    RETURN states;
END $$;

-- Stores a mark of the log; true if it allows more than the stored one.
CREATE OR REPLACE FUNCTION onecopy_capture.keep_mark(
    sequence int4, holder int4, generation int8, value int8, called boolean, descends boolean) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    WITH kept AS (
        INSERT INTO onecopy_capture.marks AS m VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (sequence, holder) DO UPDATE
        SET generation = EXCLUDED.generation, value = EXCLUDED.value, called = EXCLUDED.called, descends = EXCLUDED.descends
        WHERE EXCLUDED.generation > m.generation OR (EXCLUDED.generation = m.generation AND (
            CASE WHEN $6 THEN EXCLUDED.value < m.value ELSE EXCLUDED.value > m.value END
            OR (EXCLUDED.value = m.value AND EXCLUDED.called AND NOT m.called)))
        RETURNING 1)
    SELECT EXISTS (SELECT FROM kept)
$$;

-- Moves a sequence to a mark of the log: exactly to it if the mark starts a generation, otherwise only forward.
CREATE OR REPLACE FUNCTION onecopy_capture.move_sequence(
    sequence int4, holder int4, generation int8, value int8, called boolean, descends boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target regclass := (SELECT s.relation FROM onecopy_capture.sequences s WHERE s.id = $1);
    known int8 := (SELECT max(m.generation) FROM onecopy_capture.marks m WHERE m.sequence = $1);
    bounds record;
    present int8;
    present_called boolean;
BEGIN
    IF target IS NULL THEN
        RAISE EXCEPTION 'there is no sequence with the number %', $1;
    END IF;
    PERFORM onecopy_capture.keep_mark($1, $2, $3, $4, $5, $6);
    -- Blocks new leases of the sequence until this has ended.
    PERFORM FROM onecopy_capture.sequences s WHERE s.id = $1 FOR NO KEY UPDATE;
    -- While the sequence stands in a leased range, the mark is only stored.
    IF EXISTS (SELECT FROM onecopy_capture.leased l WHERE l.sequence = $1) THEN
        RETURN;
    END IF;
    SELECT seqmin, seqmax INTO bounds FROM pg_sequence WHERE seqrelid = target;
    value := least(greatest(value, bounds.seqmin), bounds.seqmax);
    EXECUTE format('SELECT last_value, is_called FROM %s', target) INTO present, present_called;
    IF known IS NULL OR generation > known OR (generation = known AND (
            CASE WHEN descends THEN value < present ELSE value > present END
            OR (value = present AND called AND NOT present_called))) THEN
        PERFORM setval(target, value, called);
    END IF;
END $$;

-- Before a schema change, moves sequences to where they stood at home after it, within their present bounds.
-- Positions from marks might leave the change no room. The marks of its record follow.
CREATE OR REPLACE FUNCTION onecopy_capture.put_sequences(states text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT q.seqrelid::regclass AS target, least(greatest(word[2]::int8, q.seqmin), q.seqmax) AS value, word[3]::boolean AS called
        FROM regexp_split_to_table(states, ';') AS state CROSS JOIN string_to_array(state, ' ') AS word
        JOIN onecopy_capture.sequences s ON s.id = word[1]::int4 JOIN pg_sequence q ON q.seqrelid = s.relation
        WHERE state <> ''
    LOOP
        PERFORM setval(one.target, one.value, one.called);
    END LOOP;
END $$;

-- The answer of `onecopy.sequences` for one sequence, also if another session touched it. NULL if there is no such
-- sequence.
CREATE OR REPLACE FUNCTION onecopy_capture.state_of(sequence int4) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target regclass;
    rules text;
    value int8;
    called boolean;
BEGIN
    SELECT s.relation, s.rules INTO target, rules FROM onecopy_capture.sequences s WHERE s.id = $1;
    IF target IS NULL THEN
        RETURN '';
    END IF;
    EXECUTE format('SELECT last_value, is_called FROM %s', target) INTO value, called;
    RETURN concat_ws(' ', $1, value, called, rules);
END $$;

-- Draws a range to lease: the longest run of values without values of other sessions. Returns the answer of
-- `onecopy.sequences`, then the first, the last and the number of values. NULL if there is no such sequence.
CREATE OR REPLACE FUNCTION onecopy_capture.draw_range(sequence int4, amount int4) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target regclass;
    rules text;
    increment int8;
    value int8;
    first int8;
    last int8;
    length int4 := 0;
    best_first int8;
    best_last int8;
    best int4 := 0;
BEGIN
    SELECT s.relation, s.rules, q.seqincrement INTO target, rules, increment
        FROM onecopy_capture.sequences s JOIN pg_sequence q ON q.seqrelid = s.relation WHERE s.id = $1;
    IF target IS NULL THEN
        RETURN '';
    END IF;
    FOR i IN 1..amount LOOP
        value := nextval(target);
        IF length > 0 AND value = last + increment THEN
            length := length + 1;
        ELSE
            first := value;
            length := 1;
        END IF;
        last := value;
        IF length > best THEN
            best_first := first;
            best_last := last;
            best := length;
        END IF;
    END LOOP;
    RETURN concat_ws(' ', $1, value, true, rules, best_first, best_last, best);
END $$;

-- Puts a leased range into force: moves the sequence to the first value and sets its bound to the last. Sessions see
-- both at once: the sequence is moved while the row with the bound is locked, and a session that knows the old bound
-- cannot pass it. Returns false if leases were revoked since `stint` was read.
CREATE OR REPLACE FUNCTION onecopy_capture.lend(stint int8, sequence int4, first int8, last int8) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target regclass := (SELECT s.relation FROM onecopy_capture.sequences s WHERE s.id = $2);
BEGIN
    PERFORM FROM onecopy_capture.stint s WHERE s.n = $1 FOR SHARE;
    IF NOT FOUND OR target IS NULL THEN
        RETURN false;
    END IF;
    -- A concurrent move to a mark has ended, or will see the lease.
    PERFORM FROM onecopy_capture.sequences s WHERE s.id = $2 FOR NO KEY UPDATE;
    INSERT INTO onecopy_capture.leased SELECT $2, seqmin, seqmax FROM pg_sequence WHERE seqrelid = target
        ON CONFLICT DO NOTHING;
    UPDATE pg_sequence SET seqmin = CASE WHEN seqincrement < 0 THEN $4 ELSE seqmin END,
        seqmax = CASE WHEN seqincrement > 0 THEN $4 ELSE seqmax END WHERE seqrelid = target;
    PERFORM setval(target, $3, false);
    RETURN true;
END $$;

-- Revokes all leases: the sequences get their bounds back and stand at their marks. Returns their numbers.
CREATE OR REPLACE FUNCTION onecopy_capture.unlend() RETURNS SETOF int4
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    lent record;
    mark record;
BEGIN
    UPDATE onecopy_capture.stint SET n = n + 1;
    FOR lent IN
        SELECT l.sequence, s.relation::regclass AS target, l.least, l.greatest
        FROM onecopy_capture.leased l LEFT JOIN onecopy_capture.sequences s ON s.id = l.sequence
    LOOP
        CONTINUE WHEN lent.target IS NULL;
        UPDATE pg_sequence SET seqmin = lent.least, seqmax = lent.greatest WHERE seqrelid = lent.target;
        SELECT least(greatest(m.value, lent.least), lent.greatest) AS value, m.called INTO mark
            FROM onecopy_capture.marks m WHERE m.sequence = lent.sequence
            ORDER BY m.generation DESC, CASE WHEN m.descends THEN -m.value::numeric ELSE m.value END DESC, m.called DESC
            LIMIT 1;
        IF FOUND THEN
            PERFORM setval(lent.target, mark.value, mark.called);
        END IF;
        RETURN NEXT lent.sequence;
    END LOOP;
    DELETE FROM onecopy_capture.leased;
END $$;

-- @OBJECT_IDS@

-- The tables that cannot be replicated, and why. Follows types into arrays, domains, ranges and composites.
CREATE OR REPLACE FUNCTION onecopy_capture.obstacles(relations oid[]) RETURNS TABLE (relation oid, why text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH part(root, typ) AS (
        SELECT p.root, p.typ FROM onecopy_capture.parts_of(ARRAY(
            SELECT DISTINCT atttypid FROM pg_attribute WHERE attrelid = ANY (relations) AND attnum > 0 AND NOT attisdropped)) AS p
    ), obstacle(root, why) AS MATERIALIZED (
        SELECT part.root, format('%s, whose %s', format_type(part.typ, NULL),
            CASE WHEN t.typname LIKE 'reg%' THEN 'values name objects by numbers that differ between replicas'
                 ELSE 'values no server takes' END)
        FROM part JOIN pg_type t ON t.oid = part.typ
        WHERE t.typnamespace = 'pg_catalog'::regnamespace AND t.typtype = 'b' AND (t.typname LIKE 'reg%'
            OR t.typname IN ('pg_node_tree', 'pg_ndistinct', 'pg_dependencies', 'pg_mcv_list',
                'pg_brin_bloom_summary', 'pg_brin_minmax_multi_summary'))
    )
    SELECT c.oid, CASE
        WHEN c.relkind = 'f' THEN 'it is a foreign table'
        WHEN c.relpersistence = 'u' THEN 'it is unlogged, so a crash of one replica would empty it there alone'
        ELSE (
            SELECT format('column %I has %s', a.attname, obstacle.why)
            FROM pg_attribute a JOIN obstacle ON obstacle.root = a.atttypid
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
            ORDER BY 1 LIMIT 1)
        END
    FROM pg_class c WHERE c.oid = ANY (relations) AND (c.relkind = 'f' OR c.relpersistence = 'u' OR EXISTS (SELECT FROM obstacle))
$$;

-- The number of a new object. The home of a schema change draws one. Every other replica takes the home's from the
-- record, and draws until it has passed it, so that it draws larger ones as the anchor.
CREATE OR REPLACE FUNCTION onecopy_capture.number(counter regclass, thing text, given jsonb) RETURNS int4
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    number CONSTANT int4 := given ->> thing;
BEGIN
    IF given IS NULL THEN
        RETURN nextval(counter);
    ELSIF number IS NULL THEN
        RAISE EXCEPTION 'the record of a schema change has no number for %', thing USING ERRCODE = 'data_corrupted';
    END IF;
    LOOP
        EXIT WHEN nextval(counter) >= number;
    END LOOP;
    RETURN number;
END $$;

-- Numbers new types and relations, and removes dropped ones.
CREATE OR REPLACE FUNCTION onecopy_capture.number_names(given jsonb) RETURNS TABLE (thing text, number int4)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found record;
BEGIN
    DELETE FROM onecopy_capture.names WHERE NOT CASE WHEN is_type
        THEN EXISTS (SELECT FROM pg_type WHERE oid = object) ELSE EXISTS (SELECT FROM pg_class WHERE oid = object) END;
    FOR found IN
        SELECT new.is_type, new.object, format('%s %I.%I', CASE WHEN new.is_type THEN 'type' ELSE 'relation' END,
            new.nspname, new.name) AS thing
        FROM (
            SELECT true AS is_type, t.oid AS object, n.nspname, t.typname AS name
            FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.oid >= 16384
            UNION ALL
            SELECT false, c.oid, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE c.oid >= 16384 AND c.relkind NOT IN ('i', 'I', 't')
        ) AS new
        WHERE new.nspname NOT IN ('onecopy', 'onecopy_capture', 'pg_toast') AND new.nspname !~ '^pg_(toast_)?temp'
          AND NOT EXISTS (SELECT FROM onecopy_capture.names o WHERE (o.is_type, o.object) = (new.is_type, new.object))
        ORDER BY new.is_type, new.nspname, new.name
    LOOP
        thing := found.thing;
        number := onecopy_capture.number('onecopy_capture.name_numbers', thing, given);
        INSERT INTO onecopy_capture.names VALUES (number, found.is_type, found.object);
        RETURN NEXT;
    END LOOP;
END $$;
DROP FUNCTION IF EXISTS onecopy_capture.number_names();

-- A relation's qualified name, for statements and messages.
CREATE OR REPLACE FUNCTION onecopy_capture.full_name(relation oid) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation
$$;

-- The functions of our triggers on tables.
CREATE OR REPLACE FUNCTION onecopy_capture.capturing() RETURNS oid[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY['onecopy_capture.cap()'::regprocedure, 'onecopy_capture.cap_inserted()'::regprocedure,
                 'onecopy_capture.cap_truncate()'::regprocedure]::oid[]
$$;

-- Puts new tables under capture, and restores our triggers after a statement changed them. New objects get numbers
-- that are the same on every replica. At the home the session finds the drawn numbers in the setting onecopy.numbers
-- and puts them into the record. The applier passes them on in the same setting. If several servers begin with the
-- same schema, or an old record has no numbers, objects are numbered in the order of names.
--
-- One row trigger fires in ordinary sessions, for rows that are not reported at the end. It has no condition: every
-- statement would prepare it anew, at half the cost of capturing a row. The other row trigger fires if
-- session_replication_role is 'replica'. Otherwise a client that may set that role, if only through a function, would
-- write unseen. Its condition lets the applier pass, at a tenth of the cost of calling the function. If a trigger
-- fires in every role, its condition checks the role, too, because any client can set the other setting. INSERTs that
-- are reported at their end have one trigger for all roles: the role may change while a statement runs, and the
-- report must match what it inserted.
CREATE OR REPLACE FUNCTION onecopy.install() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    relations oid[];
    found record;
    obstacle text;
    number int4;
    name text;
    events text;
    arguments text;
    given jsonb;
    things text[] := '{}';
    numbers text[] := '{}';
    not_via_applier CONSTANT text := $when$ current_setting('onecopy.via', true) IS DISTINCT FROM '@APPLY@' $when$;
    not_applier CONSTANT text := not_via_applier || $when$ OR current_setting('session_replication_role') <> 'replica' $when$;
BEGIN
    IF current_setting('onecopy.via', true) = '@APPLY@' AND current_setting('session_replication_role') = 'replica' THEN
        given := NULLIF(current_setting('onecopy.numbers', true), '');
    END IF;
    relations := ARRAY(
        SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'f') AND c.relpersistence <> 't'
          AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast', 'onecopy', 'onecopy_capture'));
    SELECT o.relation, o.why INTO found FROM onecopy_capture.obstacles(relations) o WHERE o.why IS NOT NULL ORDER BY 1 LIMIT 1;
    IF found.relation IS NOT NULL THEN
        RAISE EXCEPTION 'table % cannot be replicated: %', onecopy_capture.full_name(found.relation), found.why
            USING ERRCODE = '0A000', HINT = 'Use a column of another type (text for names of objects), or an ordinary table.';
    END IF;
    PERFORM onecopy_capture.refuse_object_ids(false);
    SELECT g.tgrelid INTO found FROM pg_trigger g
    WHERE g.tgrelid = ANY (relations)
      AND (g.tgname IN ('!onecopy', '!onecopy_insert', '!onecopy_replica', '!onecopy_truncate'))
          <> (g.tgfoid = ANY (onecopy_capture.capturing()))
    ORDER BY 1 LIMIT 1;
    IF found.tgrelid IS NOT NULL THEN
        RAISE EXCEPTION 'the triggers of Onecopy on table % keep their names and functions',
            onecopy_capture.full_name(found.tgrelid) USING ERRCODE = '0A000';
    END IF;
    FOR found IN
        SELECT c.oid, state.at_once FROM onecopy_capture.captured(relations) AS state
        JOIN pg_class c ON c.oid = state.relation JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE state.is_right IS NOT TRUE ORDER BY n.nspname, c.relname
    LOOP
        SELECT split_part(encode(tgargs, 'escape'), E'\\000', 1)::int4 INTO number
        FROM pg_trigger WHERE tgrelid = found.oid AND tgname = '!onecopy';
        name := onecopy_capture.full_name(found.oid);
        IF number IS NULL THEN
            number := onecopy_capture.number('onecopy_capture.table_numbers', 'table ' || name, given);
            things := things || ('table ' || name);
            numbers := numbers || number::text;
        END IF;
        events := CASE WHEN found.at_once THEN 'UPDATE OR DELETE' ELSE 'INSERT OR UPDATE OR DELETE' END;
        arguments := concat_ws(', ', quote_literal(number), quote_literal(onecopy_capture.captured_columns(found.oid, '$1', false)),
            quote_literal(onecopy_capture.captured_columns(found.oid, '$1', true)));
        EXECUTE format('CREATE OR REPLACE TRIGGER "!onecopy" AFTER %s ON %s FOR EACH ROW EXECUTE FUNCTION onecopy_capture.cap(%s)',
            events, name, arguments);
        IF found.at_once THEN
            EXECUTE format('CREATE OR REPLACE TRIGGER "!onecopy_insert" AFTER INSERT ON %s REFERENCING NEW TABLE AS "!new" '
                'FOR EACH STATEMENT EXECUTE FUNCTION onecopy_capture.cap_inserted(%L)', name, number);
        ELSIF EXISTS (SELECT FROM pg_trigger WHERE tgrelid = found.oid AND tgname = '!onecopy_insert') THEN
            EXECUTE format('DROP TRIGGER "!onecopy_insert" ON %s', name);
        END IF;
        EXECUTE format('CREATE OR REPLACE TRIGGER "!onecopy_replica" AFTER %s ON %s '
            'FOR EACH ROW WHEN (%s) EXECUTE FUNCTION onecopy_capture.cap(%s)', events, name, not_via_applier, arguments);
        EXECUTE format('CREATE OR REPLACE TRIGGER "!onecopy_truncate" AFTER TRUNCATE ON %s '
            'FOR EACH STATEMENT WHEN (%s) EXECUTE FUNCTION onecopy_capture.cap_truncate(%L)', name, not_applier, number);
        EXECUTE format('ALTER TABLE %s ENABLE TRIGGER "!onecopy", %s ENABLE REPLICA TRIGGER "!onecopy_replica", '
            'ENABLE ALWAYS TRIGGER "!onecopy_truncate"', name,
            CASE WHEN found.at_once THEN 'ENABLE ALWAYS TRIGGER "!onecopy_insert",' END);
    END LOOP;
    FOR found IN SELECT named.thing, named.number FROM onecopy_capture.number_names(given) AS named LOOP
        things := things || found.thing;
        numbers := numbers || found.number::text;
    END LOOP;
    DELETE FROM onecopy_capture.sequences s WHERE NOT EXISTS (SELECT FROM pg_sequence q WHERE q.seqrelid = s.relation);
    FOR found IN
        SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind = 'S' AND c.relpersistence <> 't'
          AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'onecopy', 'onecopy_capture')
          AND NOT EXISTS (SELECT FROM onecopy_capture.sequences s WHERE s.relation = c.oid)
        ORDER BY n.nspname, c.relname
    LOOP
        name := 'sequence ' || onecopy_capture.full_name(found.oid);
        number := onecopy_capture.number('onecopy_capture.sequence_numbers', name, given);
        things := things || name;
        numbers := numbers || number::text;
        INSERT INTO onecopy_capture.sequences VALUES (number, found.oid, false, '');
    END LOOP;
    PERFORM set_config('onecopy.numbers', CASE WHEN things <> '{}' THEN json_object(things, numbers)::text ELSE '' END, true);
    UPDATE onecopy_capture.sequences s SET caches = q.caches, rules = q.rules
    FROM (SELECT seqrelid, seqcache > 1, concat_ws(' ', seqincrement, COALESCE(l.least, seqmin), COALESCE(l.greatest, seqmax),
            seqcycle, seqstart)
        FROM pg_sequence LEFT JOIN (onecopy_capture.sequences o JOIN onecopy_capture.leased l ON l.sequence = o.id)
            ON o.relation = seqrelid)
        AS q(relation, caches, rules)
    WHERE q.relation = s.relation AND (s.caches, s.rules) <> (q.caches, q.rules);
    FOR found IN
        SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'onecopy_capture'::regnamespace AND c.relname ~ '^sandbox_' AND c.relkind = 'r'
            AND NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = c.relowner)
    LOOP
        EXECUTE format('DROP TABLE %s', found.oid::regclass);
    END LOOP;
    obstacle := onecopy_capture.fires_at_refresh();
    IF obstacle IS NOT NULL THEN
        RAISE EXCEPTION '% would fire again at every replica', obstacle USING ERRCODE = '0A000',
            HINT = 'Use ENABLE without ALWAYS or REPLICA, which is the default.';
    END IF;
END $$;

-- Runs install() unless the triggers have this form already. Raise the number when install() changes.
CREATE TABLE IF NOT EXISTS onecopy_capture.form (number int4 NOT NULL);
CREATE OR REPLACE FUNCTION onecopy_capture.update_tables(form int4) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM onecopy_capture.form f WHERE f.number = form) THEN
        PERFORM onecopy.install(), onecopy_capture.refuse_object_ids(true);
        DELETE FROM onecopy_capture.form;
        INSERT INTO onecopy_capture.form VALUES (form);
    END IF;
END $$;

-- Whether a CHECK gives the same answer for a row at any time and replica, under the same role and settings. It must
-- not read the clock, the server's state, OIDs or other rows, nor call user-defined functions that are not IMMUTABLE.
CREATE OR REPLACE FUNCTION onecopy_capture.is_lasting(expression pg_node_tree) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT expression::text !~ E'\\{SQLVALUEFUNCTION :op [0-8] '
        AND NOT onecopy_capture.depends_on_object_ids(expression::text) AND NOT EXISTS (
        SELECT FROM regexp_matches(expression::text, ':(?:op|elem)?funcid ([0-9]+)', 'g') AS called(id)
        JOIN pg_proc p ON p.oid = called.id[1]::oid
        WHERE p.provolatile = 'v' OR (p.provolatile = 's' AND (p.oid >= 16384 OR p.proname ~ concat('^(pg_|has_|to_reg|inet_|txid_|',
            '(database|schema|table)_to_|(col|obj|shobj)_description|current_(setting|schema)|(statement|transaction)_timestamp|',
            '(now|age|mxid_age|row_security_active|session_user|getpgusername|regclass|aclitemin)$)'))))
$$;

-- A CHECK that this transaction has just evaluated for existing rows and that is not lasting, or NULL. Each replica
-- would evaluate it at another time. A visible catalogue row of an uncommitted transaction is our own.
CREATE OR REPLACE FUNCTION onecopy_capture.passing_check(class oid, object oid) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    present CONSTANT numeric := pg_current_xact_id()::text::numeric;
    found record;
BEGIN
    FOR found IN
        SELECT k.conname, k.conrelid FROM pg_constraint k
        WHERE k.contype = 'c' AND k.convalidated AND NOT onecopy_capture.is_lasting(k.conbin)
          AND CASE WHEN class = 'pg_class'::regclass THEN k.conrelid = object ELSE k.contypid = object END
          AND pg_xact_status((present - mod(present, 4294967296) + k.xmin::text::numeric)::text::xid8) = 'in progress'
    LOOP
        IF found.conrelid <> 0 THEN
            -- A query would make the planner call functions of the table's indexes, with this function's rights.
            CONTINUE WHEN pg_relation_size(found.conrelid) = 0;
        END IF;
        RETURN found.conname;
    END LOOP;
    RETURN NULL;
END $$;

-- Suspends the CHECKs of a table, or of a domain and the domains that it is based on, at most until this transaction
-- ends. They held where and when the row was written. Other sessions see no change, because `resume_checks` runs
-- before the COMMIT. The lock blocks other in-place updates of the same catalogue row.
CREATE OR REPLACE FUNCTION onecopy_capture.suspend_checks(schema_name text, table_name text, domain_name text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF table_name IS NOT NULL THEN
        -- A schema change of this very transaction may create the table later.
        IF to_regclass(format('%I.%I', schema_name, table_name)) IS NULL THEN
            RETURN;
        END IF;
        EXECUTE format('LOCK TABLE ONLY %I.%I IN SHARE UPDATE EXCLUSIVE MODE', schema_name, table_name);
        UPDATE pg_class SET relchecks = 0 WHERE oid = format('%I.%I', schema_name, table_name)::regclass;
    ELSE
        WITH RECURSIVE below(typ) AS (
            SELECT to_regtype(format('%I.%I', schema_name, domain_name))::oid
            UNION SELECT t.typbasetype FROM below JOIN pg_type t ON t.oid = typ WHERE t.typtype = 'd'
        )
        UPDATE pg_constraint SET contype = '-' FROM below WHERE contypid = typ AND contype = 'c';
    END IF;
END $$;

-- Restores all CHECKs.
CREATE OR REPLACE FUNCTION onecopy_capture.resume_checks() RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    UPDATE pg_constraint SET contype = 'c' WHERE contype = '-';
    UPDATE pg_class c SET relchecks = k.checks
    FROM (SELECT conrelid, count(*) AS checks FROM pg_constraint WHERE contype = 'c' AND conrelid <> 0 GROUP BY conrelid) AS k
    WHERE c.oid = k.conrelid AND c.relchecks <> k.checks;
$$;

-- Whether the object of a schema change belongs to a temporary table.
CREATE OR REPLACE FUNCTION onecopy_capture.is_temporary(class oid, object oid, schema_name text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT COALESCE(schema_name = 'pg_temp', false) OR EXISTS (
        SELECT FROM pg_class c WHERE c.relpersistence = 't' AND c.oid IN (
            SELECT tgrelid FROM pg_trigger WHERE class = 'pg_trigger'::regclass AND oid = object
            UNION ALL SELECT ev_class FROM pg_rewrite WHERE class = 'pg_rewrite'::regclass AND oid = object
            UNION ALL SELECT polrelid FROM pg_policy WHERE class = 'pg_policy'::regclass AND oid = object))
$$;

-- A permanent object that depends on a temporary one of this session, so that other replicas could not create it; or
-- NULL. Temporary objects depend on the session's temporary schema. A cast or transform has the name of its type, yet
-- is permanent.
CREATE OR REPLACE FUNCTION onecopy_capture.leans_on_temporary() RETURNS text
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE leaning(class, object) AS (
        SELECT 'pg_namespace'::regclass::oid, pg_my_temp_schema() WHERE pg_my_temp_schema() <> 0
        UNION SELECT d.classid, d.objid FROM leaning JOIN pg_depend d ON d.refclassid = class AND d.refobjid = object
    )
    SELECT pg_describe_object(class, object, 0)
    FROM leaning CROSS JOIN LATERAL pg_identify_object(class, object, 0) AS shown
        CROSS JOIN LATERAL pg_identify_object_as_address(class, object, 0) AS address
    WHERE class <> 'pg_namespace'::regclass AND (
        class IN ('pg_cast'::regclass, 'pg_transform'::regclass)
        OR (COALESCE(shown.schema, '') !~ '^pg_(toast_)?temp'
            AND COALESCE(address.object_names[1], '') !~ '^"?pg_(toast_)?temp'))
    ORDER BY 1 LIMIT 1
$$;

-- Runs a schema change at another replica, with its author's rights. Meanwhile, in the applier's transaction only,
-- the function belongs to that role (`lend_run`). PostgreSQL lets no code change the role inside a SECURITY DEFINER
-- function, so the statement's code cannot become the applier.
CREATE OR REPLACE FUNCTION onecopy.run(statement text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    EXECUTE statement;
END $$;

-- Gives the function to a role for a while; false for a superuser, whose statement runs directly.
CREATE OR REPLACE FUNCTION onecopy_capture.lend_run(author text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE pg_proc SET proowner = r.oid, proacl = NULL FROM pg_roles r
        WHERE pg_proc.oid = 'onecopy.run(text)'::regprocedure AND r.rolname = author AND NOT r.rolsuper;
    RETURN FOUND;
END $$;

CREATE OR REPLACE FUNCTION onecopy_capture.take_run_back() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE pg_proc SET proowner = r.oid, proacl = ARRAY[makeaclitem(r.oid, r.oid, 'EXECUTE', false)] FROM pg_roles r
        WHERE pg_proc.oid = 'onecopy.run(text)'::regprocedure AND r.rolname = current_user;
END $$;

-- Whether the statement that fires a guard comes from the session itself, or from install() or sandbox_of(). Then the
-- outermost line of its context is that of the guard, or of these functions. Statements inside a function or DO block
-- have further lines below, which end in words that no name can imitate. A setting alone would prove nothing:
-- functions that a schema change calls can read it, and any client can read the guard.
CREATE OR REPLACE FUNCTION onecopy_capture.is_own_statement(context text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT split_part(context, E'\n', -1) ~ (E'^(PL/pgSQL function (onecopy_capture\\.guard\\(\\) line [0-9]+ at GET DIAGNOSTICS'
        '|onecopy\\.install\\(\\) line [0-9]+ at EXECUTE|onecopy_capture\\.sandbox_of\\(oid\\) line [0-9]+ at EXECUTE)|extension script file "[^"]*", near line [0-9]+)$')
$$;

-- Whether a schema change at the applier is the replayed one, and not one made by its code or a row's. Such code
-- could leave a deferred trigger for COMMIT, when the applier is a superuser again. While `onecopy.run` runs, `mark`
-- is the length of its statement; on other connections of Onecopy's it is no number. The context of the replayed
-- statement is as long as the statement and the lines around it. Code inside another function has a longer one.
CREATE OR REPLACE FUNCTION onecopy_capture.is_replayed(context text, mark text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN mark !~ '^[0-9]+$' THEN true ELSE onecopy_capture.is_own_statement(context)
        OR (lines.last ~ '^PL/pgSQL function (onecopy[.])?run[(]text[)] line [0-9]+ at EXECUTE$' AND length(context) =
            length(concat_ws(E'\n', lines.first, CASE WHEN lines.second ~ '^extension script file "[^"]*", near line [0-9]+$'
                THEN lines.second END, 'SQL statement ""', lines.last)) + mark::int4) END
    FROM (SELECT split_part(context, E'\n', 1), split_part(context, E'\n', 2), split_part(context, E'\n', -1))
        AS lines(first, second, last)
$$;

CREATE OR REPLACE FUNCTION onecopy_capture.guard() RETURNS event_trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    context text;
    leaning text;
    passing text;
    lasts boolean;
BEGIN
    GET DIAGNOSTICS context = PG_CONTEXT;
    IF current_setting('onecopy.ddl', true) = '@DDL@'
            AND (current_setting('backtrace_functions') = '@SESSION@' OR onecopy.is_vouched())
            AND (onecopy_capture.is_own_statement(context)
            OR (TG_EVENT = 'ddl_command_end' AND TG_TAG NOT IN ('REASSIGN OWNED', 'DROP OWNED')
                AND (SELECT bool_and(in_extension) FROM pg_event_trigger_ddl_commands()))) THEN
        leaning := onecopy_capture.leans_on_temporary();
        IF leaning IS NOT NULL THEN
            RAISE EXCEPTION '% would depend on a temporary object', leaning USING ERRCODE = '0A000',
                DETAIL = 'Temporary objects are at one replica only.';
        END IF;
        IF TG_EVENT = 'ddl_command_end' AND TG_TAG IN ('ALTER TABLE', 'ALTER DOMAIN') THEN
            SELECT onecopy_capture.passing_check(classid, objid) INTO passing FROM pg_event_trigger_ddl_commands()
                WHERE onecopy_capture.passing_check(classid, objid) IS NOT NULL LIMIT 1;
            IF passing IS NOT NULL THEN
                RAISE EXCEPTION 'the CHECK % depends on more than the values that it checks', quote_ident(passing)
                    USING ERRCODE = '0A000', DETAIL = 'Each replica would hold it against the rows that are there at another time.',
                    HINT = 'Add it NOT VALID, so that it counts for new rows, and leave it unvalidated.';
            END IF;
        END IF;
        -- Afterwards the session reads whether the other replicas need the statement. This runs after all user code
        -- of the statement. A statement that sets nothing here, such as CREATE ROLE, is for all.
        IF TG_EVENT = 'sql_drop' THEN
            SELECT bool_or(NOT is_temporary AND address_names[1] IS DISTINCT FROM 'pg_temp') INTO lasts
                FROM pg_event_trigger_dropped_objects() WHERE original;
        ELSIF TG_TAG IN ('REASSIGN OWNED', 'DROP OWNED') THEN
            lasts := true;
        ELSE
            SELECT bool_or(onecopy_capture.is_temporary(classid, objid, schema_name) IS NOT TRUE) INTO lasts
                FROM pg_event_trigger_ddl_commands();
        END IF;
        IF lasts THEN
            PERFORM set_config('onecopy.made', 'lasting', true);
        ELSIF NOT lasts AND current_setting('onecopy.made', true) IS DISTINCT FROM 'lasting' THEN
            PERFORM set_config('onecopy.made', 'temporary', true);
        END IF;
        RETURN;
    ELSIF current_setting('onecopy.via', true) = '@APPLY@' AND current_setting('session_replication_role') = 'replica'
            AND onecopy_capture.is_replayed(context, current_setting('backtrace_functions')) THEN
        RETURN;
    ELSIF TG_EVENT = 'sql_drop' THEN
        IF NOT EXISTS (SELECT FROM pg_event_trigger_dropped_objects()
                       WHERE original AND NOT is_temporary AND address_names[1] IS DISTINCT FROM 'pg_temp') THEN
            RETURN;
        END IF;
    -- The applier needs temporary objects only for REFRESH .. CONCURRENTLY.
    ELSIF TG_TAG NOT IN ('REASSIGN OWNED', 'DROP OWNED') AND NOT EXISTS (
            SELECT FROM pg_event_trigger_ddl_commands()
            WHERE NOT onecopy_capture.is_temporary(classid, objid, schema_name))
            AND (current_setting('backtrace_functions') !~ '^[0-9]' OR TG_TAG IN ('CREATE TABLE', 'CREATE TABLE AS', 'ALTER TABLE', 'DROP TABLE')) THEN
        RETURN;
    END IF;
    RAISE EXCEPTION '% is refused here', TG_TAG USING ERRCODE = '0A000',
        DETAIL = 'The schema of a Onecopy cluster changes by statements of its own, not inside functions or DO blocks '
                 'and not at a replica.',
        HINT = 'Run the statement by itself, through the cluster''s own address.';
END $$;

-- Reports tables that a schema change has rewritten. Only sessions read the report, so others get none.
CREATE OR REPLACE FUNCTION onecopy_capture.note_rewrite() RETURNS event_trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('backtrace_functions') = '@SESSION@' OR onecopy.is_vouched() THEN
        RAISE INFO '%|W|0|', pg_event_trigger_table_rewrite_oid() USING ERRCODE = 'OC001';
    END IF;
END $$;

-- The columns of these names in a table and its descendants.
CREATE OR REPLACE FUNCTION onecopy.known_columns(relation oid, names text[]) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE tree(oid) AS (
        SELECT relation UNION SELECT i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid
    )
    SELECT COALESCE(array_agg(format('%s.%s', a.attrelid, a.attnum)), '{}')::text
    FROM tree JOIN pg_attribute a ON a.attrelid = tree.oid
    WHERE a.attname = ANY (names) AND a.attnum > 0 AND NOT a.attisdropped
$$;

-- The values that a schema change has computed for the rows of a table and its descendants. `frozen`: columns with
-- one value in all rows (null if that is not all). `leaves`: tables whose rows have changed values. `known` comes
-- from known_columns, `rewritten` from note_rewrite.
CREATE OR REPLACE FUNCTION onecopy.computed(relation oid, names text[], known text[], rewritten oid[]) RETURNS json
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET DateStyle = 'ISO, YMD' SET TimeZone = 'UTC'
SET IntervalStyle = postgres SET extra_float_digits = 3 SET bytea_output = hex AS $$
    WITH RECURSIVE tree(oid) AS (
        SELECT relation UNION SELECT i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid
    ), fresh AS (
        SELECT a.attrelid, a.attname, a.atthasmissing AS missing, CASE WHEN a.atthasmissing
                THEN format('%L::%s', (a.attmissingval::text::text[])[1], format_type(a.atttypid, a.atttypmod)) ELSE 'NULL' END AS value
        FROM tree JOIN pg_class c ON c.oid = tree.oid AND c.relkind = 'r'
        JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_type t ON t.oid = a.atttypid
        WHERE a.attname = ANY (names) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
          AND format('%s.%s', a.attrelid, a.attnum) <> ALL (known)
          AND (a.atthasmissing OR t.typtype = 'd'
               OR EXISTS (SELECT FROM pg_attrdef d WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum))
    ), leaves AS (
        SELECT c.oid, n.nspname, c.relname, split_part(encode(g.tgargs, 'escape'), E'\\000', 1)::int4 AS id
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_trigger g ON g.tgrelid = c.oid AND g.tgname = '!onecopy'
        WHERE c.oid = ANY (rewritten) OR c.oid IN (SELECT attrelid FROM fresh)
    )
    SELECT json_build_object(
        'frozen', CASE WHEN cardinality(rewritten) = 0
            AND NOT EXISTS (SELECT FROM fresh GROUP BY attname HAVING count(DISTINCT value) > 1)
            THEN (SELECT COALESCE(json_object_agg(attname, value), '{}')
                  FROM (SELECT DISTINCT attname, value FROM fresh) AS one) END,
        'leaves', (SELECT COALESCE(json_agg(json_build_object('id', id, 'name', format('%I.%I', nspname, relname))
                                            ORDER BY id), '[]') FROM leaves))
$$;

-- A row of a table, called onecopy_row, as capture reads it.
CREATE OR REPLACE FUNCTION onecopy.captured_row(relation oid) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT COALESCE('ROW(' || onecopy_capture.captured_columns(relation, 'onecopy_row', false) || ')', 'onecopy_row.*')
$$;

-- Relations that the transaction has locked against writes by others: it changed their definition, or LOCK TABLE
-- locked them. Statements about rows, comments and statistics take weaker modes.
CREATE OR REPLACE FUNCTION onecopy.changed() RETURNS json
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT COALESCE(json_agg(json_build_object('name', c.relname, 'id', split_part(encode(g.tgargs, 'escape'), E'\\000', 1)::int4)), '[]')
    FROM (SELECT DISTINCT relation FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation'
        AND mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')) AS l
    JOIN pg_class c ON c.oid = l.relation LEFT JOIN pg_trigger g ON g.tgrelid = c.oid AND g.tgname = '!onecopy'
    WHERE c.oid >= 16384 AND c.relpersistence <> 't' AND c.relkind IN ('r', 'p', 'm', 'v', 'f')
$$;

-- The part of a value of the column by which a table is split, given as text. Onecopy computes the same, and rows in the log have it.
CREATE OR REPLACE FUNCTION onecopy.part(value text, parts int4) RETURNS int4
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT COALESCE((pg_catalog.get_byte(pg_catalog.sha256(pg_catalog.convert_to(value, 'UTF8')), 0) OPERATOR(pg_catalog.*) 256
        OPERATOR(pg_catalog.+) pg_catalog.get_byte(pg_catalog.sha256(pg_catalog.convert_to(value, 'UTF8')), 1)) OPERATOR(pg_catalog.%) parts, 0)
$$;

-- What must be held together: for each foreign key the tables with rows on both sides and its columns, and the tables of each
-- materialized view, each with our number; and all tables with their numbers, their names, the names of the tables that they are
-- partitions of, the columns by which they can be split, and the columns of what is unique in them. (Rows of any values can exclude
-- each other: such an index has no columns here.)
CREATE OR REPLACE FUNCTION onecopy.held_together() RETURNS json
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE below(top, oid) AS (
        SELECT oid, oid FROM pg_class WHERE relkind IN ('r', 'p') AND oid >= 16384
        UNION SELECT b.top, i.inhrelid FROM below b JOIN pg_inherits i ON i.inhparent = b.oid
    ), partitions AS (
        SELECT b.top, b.oid FROM below b JOIN pg_class c ON c.oid = b.oid WHERE b.top = b.oid OR c.relispartition
    ), numbered AS (
        SELECT g.tgrelid AS oid, split_part(encode(g.tgargs, 'escape'), E'\\000', 1)::int4 AS number
        FROM pg_trigger g WHERE g.tgname = '!onecopy'
    ), uses(view, relation) AS (
        SELECT oid, oid FROM pg_class WHERE relkind = 'm'
        UNION SELECT u.view, d.refobjid FROM uses u JOIN pg_rewrite r ON r.ev_class = u.relation
        JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
    ), pairs AS (
        SELECT DISTINCT c.number AS child, c.oid::regclass::text AS child_name, p.number AS parent, p.oid::regclass::text AS parent_name,
            (SELECT jsonb_agg(jsonb_build_array(ca.attname, pa.attname) ORDER BY u.at)
             FROM unnest(k.conkey, k.confkey) WITH ORDINALITY AS u(own, theirs, at)
             JOIN pg_attribute ca ON ca.attrelid = k.conrelid AND ca.attnum = u.own
             JOIN pg_attribute pa ON pa.attrelid = k.confrelid AND pa.attnum = u.theirs) AS columns
        FROM pg_constraint k JOIN partitions cs ON cs.top = k.conrelid JOIN numbered c ON c.oid = cs.oid
        JOIN partitions ps ON ps.top = k.confrelid JOIN numbered p ON p.oid = ps.oid WHERE k.contype = 'f'
    ), named AS (
        SELECT n.number, json_agg(json_build_object('schema', s.nspname, 'name', t.relname) ORDER BY p.top <> p.oid, p.top) AS names,
            (SELECT COALESCE(json_agg(a.attname ORDER BY a.attnum), '[]') FROM pg_attribute a
             LEFT JOIN pg_collation co ON co.oid = a.attcollation
             WHERE a.attrelid = n.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
             AND a.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'text'::regtype, 'varchar'::regtype, 'uuid'::regtype)
             AND COALESCE(co.collisdeterministic, true)) AS columns,
            (SELECT COALESCE(json_agg(json_build_object('name', ic.relname, 'columns', (SELECT COALESCE(json_agg(a.attname ORDER BY u.at), '[]')
                FROM unnest(i.indkey::int2[], i.indcollation::oid[]) WITH ORDINALITY AS u(attnum, compared, at)
                JOIN pg_attribute a ON a.attrelid = n.oid AND a.attnum = u.attnum AND a.attcollation = u.compared
                WHERE u.at <= i.indnkeyatts AND NOT i.indisexclusion)) ORDER BY ic.relname), '[]')
             FROM pg_index i JOIN pg_class ic ON ic.oid = i.indexrelid
             WHERE i.indrelid = n.oid AND (i.indisunique OR i.indisexclusion)) AS keys
        FROM numbered n JOIN partitions p ON p.oid = n.oid JOIN pg_class t ON t.oid = p.top JOIN pg_namespace s ON s.oid = t.relnamespace
        GROUP BY n.number, n.oid
    ), viewed AS (
        SELECT DISTINCT n.number AS "table", n.oid::regclass::text AS name, u.view::regclass::text AS view
        FROM uses u JOIN below b ON b.top = u.relation JOIN numbered n ON n.oid = b.oid
    )
    SELECT json_build_object(
        'tables', (SELECT COALESCE(json_agg(named ORDER BY number), '[]') FROM named),
        'references', (SELECT COALESCE(json_agg(pairs ORDER BY child_name, parent_name, columns), '[]') FROM pairs),
        'views', (SELECT COALESCE(json_agg(viewed ORDER BY view, name), '[]') FROM viewed))
$$;

-- Whether any relation, type or function has one of these names.
CREATE OR REPLACE FUNCTION onecopy.has_names(names text[]) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM pg_class WHERE relname = ANY (names::name[]))
        OR EXISTS (SELECT FROM pg_type WHERE typname = ANY (names::name[])) OR EXISTS (SELECT FROM pg_proc WHERE proname = ANY (names::name[]))
$$;

-- Whether a table is not captured yet, because the transaction has just created it.
CREATE OR REPLACE FUNCTION onecopy.is_new(relation oid) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM pg_class c WHERE c.oid = relation AND c.relkind = 'r' AND NOT EXISTS (
        SELECT FROM pg_trigger g WHERE g.tgrelid = c.oid AND g.tgname = '!onecopy'))
$$;

-- A table that was created from a query: its number, its name, and a statement that creates an equal table.
CREATE OR REPLACE FUNCTION onecopy.definition(relation oid) RETURNS json
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT json_build_object(
        'id', (SELECT split_part(encode(g.tgargs, 'escape'), E'\\000', 1)::int4 FROM pg_trigger g
               WHERE g.tgrelid = c.oid AND g.tgname = '!onecopy'),
        'name', format('%I.%I', n.nspname, c.relname),
        'text', format('CREATE TABLE %I.%I (%s) USING %I%s%s', n.nspname, c.relname,
            (SELECT string_agg(format('%I %s%s', a.attname, format_type(a.atttypid, a.atttypmod),
                    CASE WHEN a.attcollation <> t.typcollation THEN (
                        SELECT format(' COLLATE %I.%I', cn.nspname, co.collname) FROM pg_collation co
                        JOIN pg_namespace cn ON cn.oid = co.collnamespace WHERE co.oid = a.attcollation) END),
                ', ' ORDER BY a.attnum)
             FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
            (SELECT amname FROM pg_am WHERE oid = c.relam),
            (SELECT ' WITH (' || string_agg(option, ', ') || ')' FROM (
                SELECT unnest(c.reloptions)
                UNION ALL SELECT 'toast.' || unnest(t.reloptions) FROM pg_class t WHERE t.oid = c.reltoastrelid) o(option)),
            (SELECT format(' TABLESPACE %I', spcname) FROM pg_tablespace WHERE oid = c.reltablespace)))
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation
$$;

-- The sources of a materialized view: its own query, those of all views below, and the relations that these read.
-- Also the obstacles to equal results on all replicas: user-defined functions and operators that they use, through
-- casts, too. A domain counts as its base type, an enum as any enum.
CREATE OR REPLACE FUNCTION onecopy.view_queries(relation oid) RETURNS json
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE below(class, oid) AS (
        SELECT 'pg_class'::regclass::oid, relation
        UNION SELECT d.refclassid, d.refobjid FROM below JOIN pg_rewrite r ON r.ev_class = below.oid
            JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
        WHERE below.class = 'pg_class'::regclass
    ), related AS (
        SELECT c.* FROM below JOIN pg_class c USING (oid)
        WHERE class = 'pg_class'::regclass AND c.relkind IN ('r', 'p', 'v', 'm')
    ), base(typ, over, modifier) AS (
        SELECT a.atttypid, a.atttypid, a.atttypmod
        FROM related r JOIN pg_attribute a ON a.attrelid = r.oid WHERE a.attnum > 0 AND NOT a.attisdropped
        UNION SELECT base.typ, t.typbasetype, t.typtypmod FROM base JOIN pg_type t ON t.oid = base.over WHERE t.typtype = 'd'
    )
    SELECT json_build_object(
        'queries', (SELECT COALESCE(json_agg(pg_get_viewdef(oid)), '[]') FROM related WHERE relkind IN ('v', 'm')),
        'relations', (SELECT COALESCE(json_agg(json_build_object(
                'schema', n.nspname, 'name', r.relname,
                'row_security', r.relrowsecurity AND EXISTS (
                    SELECT FROM related v JOIN pg_roles o ON o.oid = v.relowner
                    WHERE v.relkind IN ('v', 'm') AND NOT o.rolsuper AND NOT o.rolbypassrls
                        AND (r.relforcerowsecurity OR NOT pg_has_role(o.oid, r.relowner, 'USAGE'))),
                'columns', (SELECT COALESCE(json_agg(json_build_object(
                        'name', a.attname,
                        'type_oid', CASE WHEN t.typtype = 'e' THEN 'anyenum'::regtype::oid ELSE t.oid END::int8,
                        'type_mod', b.modifier,
                        'deterministic', COALESCE(l.collisdeterministic, true)) ORDER BY a.attnum), '[]')
                    FROM pg_attribute a JOIN base b ON b.typ = a.atttypid
                    JOIN pg_type t ON t.oid = b.over AND t.typtype <> 'd'
                    LEFT JOIN pg_collation l ON l.oid = a.attcollation
                    WHERE a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
                        AND (b.over <> b.typ OR b.modifier = a.atttypmod)))), '[]')
            FROM related r JOIN pg_namespace n ON n.oid = r.relnamespace),
        'stranger', COALESCE(
            (SELECT min(pg_describe_object(class, oid, 0)) FROM below
             WHERE class IN ('pg_proc'::regclass, 'pg_operator'::regclass) AND oid >= 16384),
            CASE WHEN current_setting('gin_fuzzy_search_limit') <> '0' THEN 'the setting gin_fuzzy_search_limit' END))
$$;

-- A user-defined object that would fire at a refresh, although its effects come with the record; or NULL.
CREATE OR REPLACE FUNCTION onecopy_capture.fires_at_refresh() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT name FROM (
        SELECT format('trigger %I on table %s', g.tgname, g.tgrelid::regclass) FROM pg_trigger g
        JOIN pg_class c ON c.oid = g.tgrelid
        WHERE g.tgenabled IN ('A', 'R') AND c.relkind IN ('r', 'p', 'f') AND c.relpersistence <> 't'
          AND g.tgfoid <> ALL (onecopy_capture.capturing())
        UNION ALL
        SELECT format('rule %I on table %s', r.rulename, r.ev_class::regclass) FROM pg_rewrite r
        JOIN pg_class c ON c.oid = r.ev_class
        WHERE r.ev_enabled IN ('A', 'R') AND c.relkind IN ('r', 'p', 'f') AND c.relpersistence <> 't'
        UNION ALL
        SELECT format('event trigger %I', evtname) FROM pg_event_trigger
        WHERE evtenabled IN ('A', 'R')
          AND evtfoid NOT IN ('onecopy_capture.guard()'::regprocedure, 'onecopy_capture.note_rewrite()'::regprocedure)
    ) AS firing(name) ORDER BY name LIMIT 1
$$;

-- Sessions call these functions on their clients' connections, mostly after schema changes. There the client's
-- planner settings apply: with jit, or without sequential scans, one call took seconds. So each function has the
-- defaults of the server's release, without jit.
DO $$
DECLARE
    planner text;
    function regprocedure;
BEGIN
    SELECT string_agg(format('SET %I TO %L', name, CASE name WHEN 'jit' THEN 'off' ELSE boot_val END), ' ' ORDER BY name)
    INTO planner FROM pg_catalog.pg_settings WHERE category LIKE 'Query Tuning / %' AND context = 'user';
    FOREACH function IN ARRAY ARRAY['onecopy.install()', 'onecopy.changed()', 'onecopy.has_names(text[])', 'onecopy.residue(boolean)', 'onecopy.known_columns(oid, text[])',
        'onecopy.computed(oid, text[], text[], oid[])', 'onecopy.captured_row(oid)', 'onecopy.is_new(oid)', 'onecopy.definition(oid)',
        'onecopy.view_queries(oid)', 'onecopy_capture.guard()', 'onecopy_capture.note_rewrite()']::regprocedure[] LOOP
        EXECUTE format('ALTER FUNCTION %s %s', function, planner);
    END LOOP;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA onecopy_capture FROM PUBLIC;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA onecopy TO PUBLIC;
REVOKE ALL ON FUNCTION onecopy.run(text) FROM PUBLIC;
DROP EVENT TRIGGER IF EXISTS onecopy_ddl;
DROP EVENT TRIGGER IF EXISTS onecopy_drop;
CREATE EVENT TRIGGER onecopy_ddl ON ddl_command_end EXECUTE FUNCTION onecopy_capture.guard();
CREATE EVENT TRIGGER onecopy_drop ON sql_drop EXECUTE FUNCTION onecopy_capture.guard();
DROP EVENT TRIGGER IF EXISTS onecopy_rewrite;
CREATE EVENT TRIGGER onecopy_rewrite ON table_rewrite EXECUTE FUNCTION onecopy_capture.note_rewrite();
ALTER EVENT TRIGGER onecopy_ddl ENABLE ALWAYS;
ALTER EVENT TRIGGER onecopy_drop ENABLE ALWAYS;
ALTER EVENT TRIGGER onecopy_rewrite ENABLE ALWAYS;
