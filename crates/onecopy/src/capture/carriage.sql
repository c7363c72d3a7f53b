-- How values travel to other replicas: in binary form, or as text if a server rejects some binary values that it
-- sends itself.

-- A function of earlier releases.
DROP FUNCTION IF EXISTS onecopy_capture.is_carried_as_text(oid);
DROP FUNCTION IF EXISTS onecopy_capture.captured_columns(oid, text);

-- The column types of these tables whose values travel as text. Binary form is for types that accept all their own
-- binary values: the built-in types except those below, some of contrib, and types built from these. If `is_exact`,
-- the text must give the very same value; if false, a value with the same text suffices; if NULL, binary form would
-- do, too.
--
-- Servers reject in binary form: an empty tsquery, xml that does not parse, circles of negative radius, zones of 16
-- hours and more, vectors that are empty or do not begin with 0, deep jsonpath. A box with exchanged corners becomes
-- another box. The session itself checks json, jsonb and tsvector (values.rs) if they are columns or elements of
-- arrays.
CREATE OR REPLACE FUNCTION onecopy_capture.carried_types(relations oid[]) RETURNS TABLE (typ oid, is_exact boolean)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY WITH RECURSIVE refusing(receiver, is_exact) AS MATERIALIZED (VALUES
        ('tsqueryrecv'::name, false), ('jsonpath_recv', false), ('xml_recv', true), ('circle_recv', true), ('box_recv', true),
        ('timetz_recv', true), ('int2vectorrecv', true), ('oidvectorrecv', true)
    ), part(root, typ, is_inside) AS (
        SELECT DISTINCT t.oid, t.oid, false FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
        WHERE a.attrelid = ANY (relations) AND a.attnum > 0 AND NOT a.attisdropped AND t.typtype <> 'e'
          AND (t.oid >= 16384 OR t.typsend = 0 OR t.typcategory = 'A'
               OR t.typreceive IN (SELECT p.oid FROM refusing JOIN pg_proc p ON p.proname = receiver AND p.oid < 16384))
        UNION
        SELECT part.root, inner_type.typ, part.is_inside OR inner_type.is_inside
        FROM part JOIN pg_type t ON t.oid = part.typ
        CROSS JOIN LATERAL (
            SELECT t.typbasetype, true WHERE t.typtype = 'd'
            UNION ALL SELECT t.typelem, false WHERE t.typcategory = 'A' AND t.typelem <> 0
            UNION ALL SELECT r.rngsubtype, true FROM pg_range r
                      WHERE t.typtype IN ('r', 'm') AND t.oid IN (r.rngtypid, r.rngmultitypid)
            UNION ALL SELECT a.atttypid, true FROM pg_attribute a
                      WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
        ) inner_type(typ, is_inside)
    ), base AS (
        -- A user-defined type may use built-in functions under other names, as citext uses those of text.
        SELECT part.root, part.is_inside, p.oid IS NULL OR t.typsend = 0 AS has_none, p.prolang = 12 AS is_internal, p.prosrc,
            p.probin ~ '^([$]libdir/)?(hstore|ltree|cube)$'
                AND p.prosrc IN ('hstore_recv', 'ltree_recv', 'lquery_recv', 'cube_recv') AS is_known,
            t.typinput = 'aclitemin'::regproc OR i.probin ~ '^([$]libdir/)?(seg|isn)$' AS is_exact
        FROM part JOIN pg_type t ON t.oid = part.typ AND t.typtype = 'b'
        JOIN pg_proc i ON i.oid = t.typinput LEFT JOIN pg_proc p ON p.oid = t.typreceive
    )
    SELECT textual.typ, bool_or(textual.is_exact) FROM (
        SELECT root, COALESCE(refusing.is_exact, base.is_exact, false)
        FROM base LEFT JOIN refusing ON is_internal AND receiver = prosrc
        WHERE has_none OR receiver IS NOT NULL OR NOT (is_internal OR COALESCE(is_known, false))
            OR (is_inside AND is_internal AND prosrc IN ('json_recv', 'jsonb_recv', 'tsvectorrecv'))
        UNION ALL
        -- Code outside a sandbox must not call CHECKs of domains (sandbox.sql). Sandboxes read such values from text.
        SELECT part.root, NULL FROM part WHERE part.root = part.typ AND NOT part.is_inside
            AND part.root >= 16384 AND onecopy_capture.staged_type(part.root) IS NULL
    ) AS textual(typ, is_exact) GROUP BY textual.typ;
END $$;

-- Converts a value to text that its type's input function accepts, because a value that no replica accepts must not
-- get into the log. `how` is the check. 'exact': the text gives the same value. 'alike': the text gives a value with
-- the same text. 'xml': exact, with its declaration. 'unchecked' and 'xml unchecked' are for values that no replica
-- needs. The function calls output and input functions directly, because a cast may be a user's. A literal beside the
-- value has the value's type, in any schema.
CREATE OR REPLACE FUNCTION onecopy.carried(value anyelement, how text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET DateStyle = 'ISO, YMD' SET IntervalStyle = postgres
SET TimeZone = 'UTC' SET extra_float_digits = 3 SET bytea_output = hex SET lc_monetary = 'C' SET array_nulls = on
SET xmloption = content AS $$
DECLARE
    written text;
    is_same boolean;
    is_alike boolean;
    why text := 'Its text form stands for another value.';
BEGIN
    IF num_nulls(value) = 1 THEN
        RETURN NULL;
    END IF;
    BEGIN
        IF how IN ('xml', 'xml unchecked') THEN
            written := value::text;
        ELSE
            written := format('%s', value);
        END IF;
        IF how IN ('unchecked', 'xml unchecked') THEN
            RETURN written;
        END IF;
        EXECUTE format('SELECT record_image_eq(ROW(a), ROW(b)), format(''%%s'', a) = format(''%%s'', b) FROM ('
            'SELECT CASE WHEN true THEN $1 ELSE NULL END, CASE WHEN false THEN $1 ELSE %L END) AS pair(a, b)', written)
            INTO is_same, is_alike USING value;
        -- An array may have room for NULLs that it no longer holds.
        IF NOT is_same AND is_alike AND how <> 'alike'
                AND EXISTS (SELECT FROM pg_type WHERE oid = pg_typeof(value) AND typcategory = 'A') THEN
            EXECUTE format('SELECT record_image_eq(ROW(array_dims(a), ARRAY(SELECT unnest(a))), '
                'ROW(array_dims(b), ARRAY(SELECT unnest(b)))) FROM ('
                'SELECT CASE WHEN true THEN $1 ELSE NULL END, CASE WHEN false THEN $1 ELSE %L END) AS pair(a, b)', written)
                INTO is_same USING value;
        END IF;
    EXCEPTION WHEN OTHERS THEN
        is_same := false;
        is_alike := false;
        why := format('Its type rejects its text form: %s', SQLERRM);
    END;
    IF is_same OR (is_alike AND how = 'alike') THEN
        RETURN written;
    END IF;
    RAISE EXCEPTION 'a value of type % cannot be replicated', format_type(pg_typeof(value), NULL)
        USING ERRCODE = '0A000', DETAIL = why, HINT = 'Servers exchange values of this type as text. Store a value that its text form restores.';
END $$;

-- The stack limit of the applier, in kB. It exceeds the home's, which has tried the same values with less.
CREATE OR REPLACE FUNCTION onecopy_capture.deepest_stack() RETURNS int4
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    present CONSTANT int4 := (SELECT setting FROM pg_settings WHERE name = 'max_stack_depth');
BEGIN
    FOR times IN REVERSE 4..2 LOOP
        BEGIN
            PERFORM set_config('max_stack_depth', (present * times)::text, true);
            RETURN present * times;
        EXCEPTION WHEN invalid_parameter_value THEN
            -- The operating system allows less.
            NULL;
        END;
    END LOOP;
    RETURN present;
END $$;

-- Whether a type is xml, or a domain over it. Output of xml omits the declaration of a document; a cast to text keeps
-- it.
CREATE OR REPLACE FUNCTION onecopy_capture.is_xml(typ oid) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE base(typ) AS (
        SELECT $1 UNION SELECT t.typbasetype FROM base JOIN pg_type t ON t.oid = base.typ WHERE t.typtype = 'd'
    )
    SELECT EXISTS (SELECT FROM base WHERE base.typ = 'xml'::regtype)
$$;

-- The columns of the row `of` as capture reads them, or NULL if all travel in binary form. In the old row, only the
-- columns are checked by which replicas find it.
CREATE OR REPLACE FUNCTION onecopy_capture.captured_columns(relation oid, of text, is_old boolean) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH carried AS MATERIALIZED (
        SELECT *, onecopy_capture.is_xml(typ) FROM onecopy_capture.carried_types(ARRAY[relation])
    ), key AS MATERIALIZED (
        SELECT indkey::int2[] AS columns FROM pg_index WHERE indrelid = relation AND indisprimary AND indimmediate
    )
    SELECT CASE WHEN EXISTS (SELECT FROM carried) THEN (
        SELECT string_agg(CASE WHEN carried.typ IS NULL THEN format('(%s).%I', of, attname)
            ELSE format('onecopy.carried((%s).%I, %L)', of, attname, CASE
                WHEN attgenerated = '' AND NOT (is_old AND COALESCE((SELECT attnum <> ALL (columns) FROM key), false))
                THEN CASE WHEN is_xml THEN 'xml' WHEN carried.is_exact THEN 'exact' WHEN carried.is_exact IS NULL THEN 'unchecked'
                    ELSE 'alike' END
                ELSE CASE WHEN is_xml THEN 'xml unchecked' ELSE 'unchecked' END END) END, ', ' ORDER BY attnum)
        FROM pg_attribute LEFT JOIN carried ON carried.typ = atttypid
        WHERE attrelid = relation AND attnum > 0 AND NOT attisdropped
    ) END
$$;
