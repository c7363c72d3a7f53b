-- Rejects definitions whose meaning depends on object ids (OIDs), which differ between replicas. Examples: the value
-- of an enum is its label's OID, so two replicas hash it differently; a column tableoid or a cast of regclass to oid
-- shows an OID as a number.

-- The types that a value consists of, at any depth: elements of arrays, bases of domains, bounds of ranges, fields of
-- composites.
CREATE OR REPLACE FUNCTION onecopy_capture.parts_of(roots oid[]) RETURNS TABLE (root oid, typ oid)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE part(root, typ) AS (
        SELECT DISTINCT r, r FROM unnest(roots) AS r
        UNION
        SELECT part.root, inner_type.typ
        FROM part JOIN pg_type t ON t.oid = part.typ
        CROSS JOIN LATERAL (
            SELECT t.typelem WHERE t.typelem <> 0
            UNION ALL SELECT t.typbasetype WHERE t.typbasetype <> 0
            UNION ALL SELECT rngsubtype FROM pg_range WHERE rngtypid = t.oid OR rngmultitypid = t.oid
            UNION ALL SELECT atttypid FROM pg_attribute
                      WHERE attrelid = t.typrelid AND t.typrelid <> 0 AND attnum > 0 AND NOT attisdropped
        ) inner_type(typ)
    )
    SELECT * FROM part
$$;

-- Whether values of any of these types contain OIDs: of enum labels, of roles in aclitem, of objects in regclass and
-- its kin.
CREATE OR REPLACE FUNCTION onecopy_capture.contain_object_ids(types oid[]) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM onecopy_capture.parts_of(types) AS part JOIN pg_type t ON t.oid = part.typ
        WHERE t.typtype = 'e' OR t.typname IN ('anyenum', 'aclitem') AND t.oid < 16384
            OR t.typname LIKE 'reg%' AND t.typtype = 'b' AND t.oid < 16384)
$$;

-- Built-in functions that compute with the OIDs in values: they hash or send them, or order rows by their bytes.
-- Functions of arrays, rows and ranges do so only if their parts contain OIDs.
CREATE OR REPLACE FUNCTION onecopy_capture.object_id_functions() RETURNS TABLE (function oid, of_parts boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT p.oid, p.proname ~ '^(hash_(array|record|range|multirange)|btrecord|record)' FROM pg_proc p
    WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname IN (
        'hashenum', 'hashenumextended', 'hash_aclitem', 'hash_aclitem_extended', 'satisfies_hash_partition',
        'regclasssend', 'regcollationsend', 'regconfigsend', 'regdictionarysend', 'regnamespacesend', 'regopersend',
        'regoperatorsend', 'regprocsend', 'regproceduresend', 'regrolesend', 'regtypesend',
        'hash_array', 'hash_array_extended', 'hash_record', 'hash_record_extended', 'hash_range', 'hash_range_extended',
        'hash_multirange', 'hash_multirange_extended', 'btrecordimagecmp', 'record_image_lt', 'record_image_le',
        'record_image_gt', 'record_image_ge')
$$;

-- The types that a stored expression mentions.
CREATE OR REPLACE FUNCTION onecopy_capture.types_in(expression text) RETURNS oid[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT array_agg(DISTINCT found[1]::oid) FROM regexp_matches(expression, 'type(?:id)? ([0-9]+)', 'gi') AS found
$$;

-- Whether the result of a stored expression depends on OIDs: it reads tableoid, has a value of regclass or its kin,
-- or calls such a function. Text search names configurations and dictionaries by OID, and does the same at each
-- replica unless one becomes a number.
CREATE OR REPLACE FUNCTION onecopy_capture.depends_on_object_ids(expression text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT expression ~ E':varattno -6\\M'
        OR EXISTS (
            SELECT FROM pg_type t WHERE t.oid = ANY (mentioned.types) AND t.oid < 16384 AND t.typname ~ '^_?reg'
            AND (t.typname !~ '^_?reg(config|dictionary)$' OR expression ~ E':resulttype (26|1028)\\M'))
        OR EXISTS (
            SELECT FROM regexp_matches(expression, ':(?:op|elem)?funcid ([0-9]+)', 'g') AS called
            JOIN onecopy_capture.object_id_functions() AS known ON known.function = called[1]::oid
            WHERE NOT known.of_parts OR onecopy_capture.contain_object_ids(mentioned.types))
    FROM onecopy_capture.types_in(expression) AS mentioned(types)
$$;

-- Raises an error if a definition cannot be replicated for that reason: one of this transaction, or any. CHECKs may
-- depend on OIDs, because they hold when and where a row is written (`is_lasting`). A table may hash its keys by a
-- user-defined operator class.
CREATE OR REPLACE FUNCTION onecopy_capture.refuse_object_ids(everything boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- A definition no older than this transaction is its own, or is newer.
    oldest CONSTANT int4 := CASE WHEN everything THEN 2147483647 ELSE age(xid(pg_current_xact_id())) END;
    signs text;
    found record;
BEGIN
    FOR found IN
        SELECT p.partrelid AS relation, format('it is partitioned by the hash of %s, whose values hold object ids',
                COALESCE(format_type(a.atttypid, NULL), 'an expression')) AS why,
            'Use PARTITION BY LIST, or a column of another type, such as text.' AS hint, NULL AS stored
        FROM pg_partitioned_table p CROSS JOIN LATERAL unnest(p.partattrs::int2[], p.partclass::oid[]) AS key(column_number, class)
        JOIN pg_opclass o ON o.oid = key.class
        JOIN pg_amproc h ON h.amprocfamily = o.opcfamily AND h.amproclefttype = o.opcintype
            AND h.amprocrighttype = o.opcintype AND h.amprocnum = 2
        LEFT JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = key.column_number AND a.attnum > 0
        WHERE p.partstrat = 'h' AND age(p.xmin) <= oldest
            AND EXISTS (SELECT FROM onecopy_capture.object_id_functions() AS known WHERE known.function = h.amproc
                        AND (NOT known.of_parts OR onecopy_capture.contain_object_ids(
                            CASE WHEN a.attnum > 0 THEN ARRAY[a.atttypid] ELSE onecopy_capture.types_in(p.partexprs::text) END)))
        UNION ALL
        SELECT expression.relation, expression.name || ' depends on object ids',
            'Leave out tableoid, casts of regclass and its kin, and hashes of enums.', expression.stored
        FROM (
            SELECT d.adrelid, format('the generated column %I', a.attname), d.adbin::text
            FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
            WHERE a.attgenerated <> '' AND age(d.xmin) <= oldest
            UNION ALL
            SELECT x.indrelid, format('the index %I', c.relname), concat(x.indexprs::text, x.indpred::text)
            FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid
            WHERE (x.indexprs IS NOT NULL OR x.indpred IS NOT NULL) AND age(x.xmin) <= oldest
            UNION ALL
            SELECT p.partrelid, 'the partition key', p.partexprs::text FROM pg_partitioned_table p
            WHERE p.partexprs IS NOT NULL AND age(p.xmin) <= oldest) AS expression(relation, name, stored)
    LOOP
        -- A quick test first: almost no expression contains any of these.
        IF signs IS NULL THEN
            signs := format(E':varattno -6\\M|type(id)? (%s)\\M|funcid (%s)\\M',
                (SELECT string_agg(oid::text, '|') FROM pg_type WHERE oid < 16384 AND typname ~ '^_?reg'),
                (SELECT string_agg(function::text, '|') FROM onecopy_capture.object_id_functions()));
        END IF;
        CONTINUE WHEN found.stored !~ signs;
        IF (found.stored IS NULL OR onecopy_capture.depends_on_object_ids(found.stored))
                AND EXISTS (SELECT FROM pg_class c WHERE c.oid = found.relation AND c.relpersistence <> 't') THEN
            RAISE EXCEPTION 'table % cannot be replicated: %, which differ between replicas',
                onecopy_capture.full_name(found.relation), found.why USING ERRCODE = '0A000', HINT = found.hint;
        END IF;
    END LOOP;
END $$;
