-- Applies rows whose tables call user code, as the tables' owners. Like PostgreSQL from release 16 on, this takes a
-- security-restricted operation: code in it cannot change role or settings for longer, cannot prepare statements, and
-- cannot leave a cursor or deferred trigger for COMMIT, when the applier is a superuser again. ANALYZE starts such an
-- operation, as the owner of the analyzed table. So each owner has a table here, its sandbox, with one row and a
-- partial index. ANALYZE evaluates the index's predicate for the row, and the predicate does the work. It returns
-- false, so that ANALYZE finds nothing to store.

-- Whether an expression may call user code, or code with all its caller's rights. It may if it calls any function
-- that is neither built in and IMMUTABLE nor an extension's IMMUTABLE function in C, or mentions a type of `strange`.
CREATE OR REPLACE FUNCTION onecopy_capture.runs_code(expression pg_node_tree, strange oid[]) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM regexp_matches(expression::text, ':[a-z]*f(?:unc|no)id ([0-9]+)', 'g') AS called(id)
        LEFT JOIN pg_proc p ON p.oid = called.id[1]::oid LEFT JOIN pg_language l ON l.oid = p.prolang
        WHERE called.id[1] <> '0' AND (p.provolatile = 'i' AND (p.oid < 16384 OR l.lanname = 'c')) IS NOT TRUE
    ) OR EXISTS (
        SELECT FROM regexp_matches(expression::text, ':[a-zA-Z]*(?:type|typid|typeId) ([0-9]+)', 'g') AS mentioned(id)
        WHERE mentioned.id[1]::oid = ANY (strange))
$$;

-- Domains with CHECKs that do, and types built from them.
CREATE OR REPLACE FUNCTION onecopy_capture.strange_types() RETURNS oid[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE strange(typ) AS (
        SELECT contypid FROM pg_constraint
        WHERE contypid <> 0 AND conbin IS NOT NULL AND onecopy_capture.runs_code(conbin, '{}')
        UNION
        SELECT made.typ FROM strange CROSS JOIN LATERAL (
            SELECT t.oid FROM pg_type t
            WHERE (t.typtype = 'd' AND t.typbasetype = strange.typ) OR (t.typcategory = 'A' AND t.typelem = strange.typ)
            UNION ALL SELECT unnest(ARRAY[r.rngtypid, r.rngmultitypid]) FROM pg_range r WHERE r.rngsubtype = strange.typ
            UNION ALL SELECT c.reltype FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
                      WHERE a.atttypid = strange.typ AND a.attnum > 0 AND NOT a.attisdropped AND c.reltype <> 0
            UNION ALL SELECT k.contypid FROM pg_depend d JOIN pg_constraint k ON k.oid = d.objid AND k.contypid <> 0
                      WHERE d.classid = 'pg_constraint'::regclass AND d.refclassid = 'pg_type'::regclass
                        AND d.refobjid = strange.typ
        ) AS made(typ)
    )
    SELECT COALESCE(array_agg(typ), '{}') FROM strange
$$;

-- The tables that call such code when rows are written, or when that is planned.
CREATE OR REPLACE FUNCTION onecopy_capture.sandboxed(relations oid[]) RETURNS SETOF oid
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE strange AS MATERIALIZED (
        SELECT onecopy_capture.strange_types() AS types
    ), family(oid, member) AS (
        SELECT r.oid, r.oid FROM unnest(relations) AS r(oid)
        UNION SELECT family.oid, i.inhparent FROM family JOIN pg_inherits i ON i.inhrelid = family.member
    ), coded(oid) AS MATERIALIZED (
        SELECT a.attrelid FROM strange JOIN pg_attribute a ON a.atttypid = ANY (types)
        WHERE a.attnum > 0 AND NOT a.attisdropped
        UNION ALL SELECT k.conrelid FROM strange CROSS JOIN pg_constraint k
        WHERE k.conrelid <> 0 AND k.conbin IS NOT NULL AND onecopy_capture.runs_code(k.conbin, types)
        UNION ALL SELECT d.adrelid FROM strange CROSS JOIN pg_attrdef d
            JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
        WHERE a.attgenerated <> '' AND onecopy_capture.runs_code(d.adbin, types)
        UNION ALL SELECT x.indrelid FROM strange CROSS JOIN pg_index x
        WHERE (x.indexprs IS NOT NULL AND onecopy_capture.runs_code(x.indexprs, types))
            OR (x.indpred IS NOT NULL AND onecopy_capture.runs_code(x.indpred, types))
        UNION ALL SELECT s.stxrelid FROM strange CROSS JOIN pg_statistic_ext s
        WHERE s.stxexprs IS NOT NULL AND onecopy_capture.runs_code(s.stxexprs, types)
        UNION ALL SELECT p.partrelid FROM strange CROSS JOIN pg_partitioned_table p
        WHERE p.partexprs IS NOT NULL AND onecopy_capture.runs_code(p.partexprs, types)
    )
    SELECT DISTINCT family.oid FROM family JOIN coded ON coded.oid = family.member
$$;

-- The type in which values of another type enter a sandbox, such that reading them calls no user code. NULL if there
-- is none; then they travel as text and are parsed inside.
CREATE OR REPLACE FUNCTION onecopy_capture.staged_type(typ oid) RETURNS oid
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kind record;
    inner_type oid;
BEGIN
    SELECT t.typtype, t.typbasetype, t.typelem, t.typcategory, t.typrelid INTO kind FROM pg_type t WHERE t.oid = typ;
    IF kind.typtype = 'd' THEN
        RETURN onecopy_capture.staged_type(kind.typbasetype);
    ELSIF kind.typcategory = 'A' AND kind.typelem <> 0 THEN
        inner_type := onecopy_capture.staged_type(kind.typelem);
        RETURN CASE WHEN inner_type = kind.typelem THEN typ
            ELSE (SELECT NULLIF(t.typarray, 0) FROM pg_type t WHERE t.oid = inner_type) END;
    ELSIF kind.typtype = 'c' THEN
        RETURN CASE WHEN NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = kind.typrelid AND a.attnum > 0
            AND NOT a.attisdropped AND onecopy_capture.staged_type(a.atttypid) IS DISTINCT FROM a.atttypid) THEN typ END;
    ELSIF kind.typtype IN ('r', 'm') THEN
        RETURN CASE WHEN NOT EXISTS (SELECT FROM pg_range r WHERE typ IN (r.rngtypid, r.rngmultitypid)
            AND onecopy_capture.staged_type(r.rngsubtype) IS DISTINCT FROM r.rngsubtype) THEN typ END;
    END IF;
    RETURN typ;
END $$;

-- How the columns of tables enter a sandbox: the type, its array type (0: none, see catalogue.rs), and the text
-- before and behind a value that converts it to the column's type.
CREATE OR REPLACE FUNCTION onecopy_capture.staging(relations oid[])
RETURNS TABLE (relation oid, attnum int2, typ oid, type_name text, array_type oid, before text, behind text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE base(typ, base, is_last) AS (
        SELECT DISTINCT a.atttypid, a.atttypid, t.typtype <> 'd' FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
        WHERE a.attrelid = ANY (relations) AND a.attnum > 0 AND NOT a.attisdropped
        UNION SELECT base.typ, t.typbasetype, b.typtype <> 'd' FROM base JOIN pg_type t ON t.oid = base.base
            JOIN pg_type b ON b.oid = t.typbasetype WHERE NOT is_last
    ), staged AS MATERIALIZED (
        SELECT base.typ, base.base, onecopy_capture.staged_type(base.typ) AS staged FROM base WHERE is_last
    )
    SELECT a.attrelid, a.attnum, COALESCE(s.staged, 'text'::regtype), format_type(COALESCE(s.staged, 'text'::regtype), -1),
        CASE WHEN s.staged IS NULL OR t.typcategory IN ('A', 'C') THEN 0 ELSE t.typarray END,
        concat(CASE WHEN s.staged IS DISTINCT FROM a.atttypid THEN 'CAST(' END, CASE WHEN s.staged IS NULL THEN 'onecopy.read_as(' END),
        concat(CASE WHEN s.staged IS NULL THEN format(', NULL::%s)', format_type(s.base, -1)) END,
            CASE WHEN s.staged IS DISTINCT FROM a.atttypid THEN format(' AS %s)', format_type(a.atttypid, -1)) END)
    FROM pg_attribute a JOIN staged s ON s.typ = a.atttypid LEFT JOIN pg_type t ON t.oid = s.staged
    WHERE a.attrelid = ANY (relations) AND a.attnum > 0 AND NOT a.attisdropped
$$;

-- The search path of a table's code: the table's schema, then public, then all other schemas whose owners the table's
-- owner trusts. These are superusers, the database's owner, and roles that the owner is a member of. Any other role
-- could plant a function.
CREATE OR REPLACE FUNCTION onecopy_capture.code_path(owner oid, schema_name name) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(quote_ident(n.nspname), ', ' ORDER BY n.nspname <> schema_name, n.nspname <> 'public', n.nspname)
    FROM pg_namespace n LEFT JOIN pg_roles o ON o.oid = n.nspowner
    WHERE n.nspname IN (schema_name, 'public') OR (
        n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'onecopy', 'onecopy_capture')
        AND (o.rolsuper OR (pg_has_role(owner, n.nspowner, 'MEMBER') OR n.nspowner = (
                SELECT d.datdba FROM pg_database d WHERE d.datname = current_database()))
            AND NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = owner AND r.rolsuper)))
$$;

-- The rows for a statement in the sandbox: those of a portal of this name, opened outside.
CREATE OR REPLACE FUNCTION onecopy.staged() RETURNS SETOF record
LANGUAGE plpgsql VOLATILE ROWS 1 SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    portal refcursor := 'onecopy rows';
    one record;
BEGIN
    LOOP
        FETCH portal INTO one;
        EXIT WHEN NOT FOUND;
        RETURN NEXT one;
    END LOOP;
END $$;

-- Parses a value inside the sandbox by the type's input function. Code that this calls has the caller's search path,
-- so every name is qualified. A row variable takes a row's values one by one.
CREATE OR REPLACE FUNCTION onecopy.read_as(value text, kind anyelement, OUT read anyelement) LANGUAGE plpgsql STABLE AS $$
DECLARE
    is_row pg_catalog.bool := EXISTS (SELECT FROM pg_catalog.pg_type t
        WHERE t.oid OPERATOR(pg_catalog.=) pg_catalog.pg_typeof(kind) AND t.typtype OPERATOR(pg_catalog.=) 'c');
BEGIN
    IF value IS NOT NULL THEN
        EXECUTE pg_catalog.format('SELECT %s FROM (SELECT CASE WHEN false THEN $1 ELSE %L END) AS one(x)',
            CASE WHEN is_row THEN '(x).*' ELSE 'x' END, value) INTO read USING kind;
    END IF;
END $$;

-- Does the work in a sandbox that `work_as_owner` has set. Any role may call it, with its own rights.
CREATE OR REPLACE FUNCTION onecopy.work() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    work CONSTANT json := current_setting('onecopy.work');
    rows int8;
BEGIN
    PERFORM set_config('search_path', work->>'path', true);
    EXECUTE work->>'statement';
    GET DIAGNOSTICS rows = ROW_COUNT;
    IF rows <> (work->>'rows')::int8 THEN
        RAISE EXCEPTION 'a statement on table % concerned % rows instead of %', work->>'relation', rows, work->>'rows'
            USING ERRCODE = 'OC002';
    END IF;
END $$;

-- The predicate. An index requires it to be IMMUTABLE, so a function of its own does the writing.
CREATE OR REPLACE FUNCTION onecopy.works(present boolean) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('onecopy.work', true) <> '' THEN
        PERFORM onecopy.work();
    END IF;
    RETURN false;
END $$;

-- The sandbox of a role. It has no entry in pg_shdepend, so DROP ROLE ignores it, and `install` drops it afterwards.
CREATE OR REPLACE FUNCTION onecopy_capture.sandbox_of(owner oid) RETURNS regclass
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name CONSTANT text := format('onecopy_capture.sandbox_%s', owner);
BEGIN
    IF to_regclass(name) IS NULL THEN
        EXECUTE format('CREATE TABLE %s (present boolean) WITH (autovacuum_enabled = off)', name);
        EXECUTE format('ALTER TABLE %s ALTER present SET STATISTICS 0', name);
        EXECUTE format('INSERT INTO %s VALUES (true)', name);
        EXECUTE format('CREATE INDEX ON %s (present) WHERE onecopy.works(present)', name);
        UPDATE pg_class SET relowner = owner WHERE oid = name::regclass;
    END IF;
    RETURN name::regclass;
END $$;

-- Does work of `rows` rows on a table as its owner. The owner may lack a privilege for that, by a REVOKE, or by row
-- security that he has forced on himself. He gets it temporarily, which no other session sees.
CREATE OR REPLACE FUNCTION onecopy_capture.work_as_owner(relation regclass, path text, statement text, rows int8) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own record;
    lacks_rights boolean;
    portal refcursor := 'onecopy rows';
    left_over record;
BEGIN
    SELECT c.relowner, c.relacl, c.relforcerowsecurity, n.oid AS schema, n.nspowner, n.nspacl,
            c.relrowsecurity AND c.relforcerowsecurity AND NOT (r.rolsuper OR r.rolbypassrls) AS is_filtered INTO STRICT own
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_roles r ON r.oid = c.relowner
        WHERE c.oid = relation;
    lacks_rights := own.is_filtered OR NOT (has_schema_privilege(own.relowner, own.schema, 'USAGE')
        AND has_table_privilege(own.relowner, relation, 'SELECT') AND has_table_privilege(own.relowner, relation, 'INSERT')
        AND has_table_privilege(own.relowner, relation, 'UPDATE') AND has_table_privilege(own.relowner, relation, 'DELETE'));
    IF lacks_rights THEN
        EXECUTE format('LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE', relation);
        UPDATE pg_class SET relacl = NULL, relforcerowsecurity = false WHERE oid = relation;
        UPDATE pg_namespace SET nspacl = COALESCE(nspacl, acldefault('n', nspowner))
            || makeaclitem(own.relowner, nspowner, 'USAGE', false) WHERE oid = own.schema;
    END IF;
    PERFORM set_config('onecopy.work',
        json_build_object('relation', relation::text, 'path', path, 'statement', statement, 'rows', rows)::text, true);
    EXECUTE format('ANALYZE onecopy_capture.sandbox_%s', own.relowner);
    PERFORM set_config('onecopy.work', '', true);
    FETCH portal INTO left_over;
    IF FOUND THEN
        RAISE EXCEPTION 'the sandbox of table % did not work', relation USING ERRCODE = 'XX000';
    END IF;
    IF lacks_rights THEN
        UPDATE pg_class SET relacl = own.relacl, relforcerowsecurity = own.relforcerowsecurity WHERE oid = relation;
        UPDATE pg_namespace SET nspacl = own.nspacl WHERE oid = own.schema;
    END IF;
END $$;

-- How an initial copy fills a table: the columns into which another server's rows are copied, the statement that
-- turns these into rows of the table, and the search path of its code. NULL if the table calls no such code.
CREATE OR REPLACE FUNCTION onecopy_capture.filling(relations oid[])
RETURNS TABLE (relation oid, stage text, statement text, path text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH sandboxed AS MATERIALIZED (
        SELECT s.oid FROM onecopy_capture.sandboxed(relations) AS s(oid)
    ), stored AS MATERIALIZED (
        SELECT s.*, a.attname, row_number() OVER (PARTITION BY s.relation ORDER BY s.attnum) AS number
        FROM onecopy_capture.staging(ARRAY(SELECT sandboxed.oid FROM sandboxed)) AS s
        JOIN pg_attribute a ON a.attrelid = s.relation AND a.attnum = s.attnum WHERE a.attgenerated = ''
    )
    SELECT c.oid, list.stage, format('INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM onecopy.staged() AS u(%s)',
        format('%I.%I', n.nspname, c.relname), list.columns, list.values, list.stage),
        onecopy_capture.code_path(c.relowner, n.nspname)
    FROM (SELECT stored.relation, string_agg(format('c%s %s', number, type_name), ', ' ORDER BY number) AS stage,
            string_agg(quote_ident(attname), ', ' ORDER BY number) AS columns,
            string_agg(concat(before, 'u.c', number, behind), ', ' ORDER BY number) AS values
        FROM stored GROUP BY stored.relation) AS list
    JOIN pg_class c ON c.oid = list.relation JOIN pg_namespace n ON n.oid = c.relnamespace
$$;

-- Hides indexes and statistics with such code from the planner until this transaction ends, which must be rolled
-- back. Otherwise the planner would call functions of constants with the reader's rights.
CREATE OR REPLACE FUNCTION onecopy_capture.hide_code() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    strange CONSTANT oid[] := onecopy_capture.strange_types();
    hidden CONSTANT oid[] := ARRAY(
        SELECT x.indrelid FROM pg_index x
        WHERE (x.indexprs IS NOT NULL AND onecopy_capture.runs_code(x.indexprs, strange))
            OR (x.indpred IS NOT NULL AND onecopy_capture.runs_code(x.indpred, strange))
        UNION SELECT s.stxrelid FROM pg_statistic_ext s
        WHERE s.stxexprs IS NOT NULL AND onecopy_capture.runs_code(s.stxexprs, strange));
BEGIN
    UPDATE pg_class SET relhasindex = false WHERE oid = ANY (hidden) AND relhasindex;
    UPDATE pg_statistic_ext SET stxexprs = NULL WHERE stxrelid = ANY (hidden) AND stxexprs IS NOT NULL;
END $$;
