-- Replacements for built-in functions that a client's statement calls directly (`sql::stand_ins`). Before the
-- statement, Onecopy passes data to the connection as JSON in `onecopy.told`. Clients may change it.

-- A setting that the session has, and this server has not.
CREATE OR REPLACE FUNCTION onecopy.told_setting(kind text, setting_name text) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT nullif(current_setting('onecopy.told', true), '')::json -> kind ->> lower(setting_name)
$$;

-- These two run with the client's search path, because it is a setting, too.
CREATE OR REPLACE FUNCTION onecopy.current_setting(setting_name text, missing_ok boolean DEFAULT false) RETURNS text
LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
    SELECT coalesce(onecopy.told_setting('settings', setting_name), pg_catalog.current_setting(setting_name, missing_ok))
$$;

CREATE OR REPLACE FUNCTION onecopy.pg_settings() RETURNS SETOF pg_catalog.pg_settings
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT s.name, coalesce(onecopy.told_setting('settings', s.name), s.setting), s.unit, s.category, s.short_desc, s.extra_desc,
        s.context, s.vartype, s.source, s.min_val, s.max_val, s.enumvals, s.boot_val,
        coalesce(onecopy.told_setting('resets', s.name), s.reset_val), s.sourcefile, s.sourceline, s.pending_restart
    FROM pg_catalog.pg_settings s
$$;

-- A session ends another one, or its statement (`client/signals.rs`).
CREATE OR REPLACE FUNCTION onecopy.pg_backend_pid(session int4) RETURNS int4
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS 'SELECT session';

-- Whether a process serves a session of Onecopy, or waits for one.
CREATE OR REPLACE FUNCTION onecopy.serves_sessions(process int4) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM onecopy_capture.vouched v JOIN pg_stat_get_activity(process) AS a ON a.backend_start = v.started
        WHERE v.pid = process)
$$;

-- Asks for the end of a session, or of its statement, if the caller may do that. It runs with the caller's rights,
-- and with a search path that shows its name with the schema. NULL if the process serves no session.
CREATE OR REPLACE FUNCTION onecopy.signal_session(pid int4, action text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_number boolean := pid >= 1073741824;
    known json := nullif(current_setting('onecopy.told', true), '')::json -> 'sessions';
    target pg_roles%ROWTYPE;
    what text := CASE action WHEN 'cancel' THEN 'cancel query' ELSE 'terminate process' END;
BEGIN
    IF is_number THEN
        SELECT * INTO target FROM pg_roles r WHERE r.rolname = known ->> pid::text;
        IF NOT FOUND THEN
            RAISE WARNING 'PID % is not a PostgreSQL backend process', pid;
            RETURN false;
        END IF;
    ELSIF onecopy.serves_sessions(pid) THEN
        SELECT r.* INTO target FROM pg_roles r JOIN pg_stat_get_activity(pid) AS a ON a.usesysid = r.oid;
    ELSE
        RETURN NULL;
    END IF;
    IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        IF target.rolsuper THEN
            RAISE EXCEPTION 'permission denied to %', what USING ERRCODE = '42501',
                DETAIL = format('Only roles with the SUPERUSER attribute may %s of roles with the SUPERUSER attribute.',
                    CASE action WHEN 'cancel' THEN 'cancel queries' ELSE 'terminate processes' END);
        ELSIF NOT (pg_has_role(target.oid, 'USAGE') OR pg_has_role('pg_signal_backend', 'USAGE')) THEN
            RAISE EXCEPTION 'permission denied to %', what USING ERRCODE = '42501',
                DETAIL = format('Only roles with privileges of the role whose %s or with privileges of the "pg_signal_backend" role may %s.',
                    CASE action WHEN 'cancel' THEN 'query is being canceled' ELSE 'process is being terminated' END,
                    CASE action WHEN 'cancel' THEN 'cancel this query' ELSE 'terminate this process' END);
        END IF;
    END IF;
    IF action = 'cancel' AND (pid = pg_backend_pid() OR pid::text = known ->> 'own') THEN
        RETURN pg_cancel_backend(pg_backend_pid());
    END IF;
    RAISE INFO '%|%|%', action, pid, target.rolname USING ERRCODE = 'OC002';
    RETURN true;
END $$;

-- Whether a process is one of Onecopy's own, which clients may not end.
CREATE OR REPLACE FUNCTION onecopy.is_own_process(pid int4) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_stat_get_activity(pid) AS a JOIN pg_roles r ON r.oid = a.usesysid
            WHERE r.rolsuper AND a.application_name LIKE 'onecopy %') THEN
        RETURN false;
    END IF;
    RAISE WARNING 'PID % serves Onecopy itself', pid;
    RETURN true;
END $$;

CREATE OR REPLACE FUNCTION onecopy.pg_cancel_backend(pid int4) RETURNS boolean
LANGUAGE plpgsql VOLATILE STRICT SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN coalesce(onecopy.signal_session(pid, 'cancel'), NOT onecopy.is_own_process(pid) AND pg_cancel_backend(pid));
END $$;

-- A session that is named by its number ends without being waited for.
CREATE OR REPLACE FUNCTION onecopy.pg_terminate_backend(pid int4, timeout int8 DEFAULT 0) RETURNS boolean
LANGUAGE plpgsql VOLATILE STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_signaled boolean;
    deadline timestamptz := clock_timestamp() + timeout * interval '1 millisecond';
BEGIN
    IF timeout < 0 THEN
        RAISE EXCEPTION '"timeout" must not be negative' USING ERRCODE = '22003';
    END IF;
    is_signaled := onecopy.signal_session(pid, 'terminate');
    IF is_signaled IS NULL THEN
        RETURN NOT onecopy.is_own_process(pid) AND pg_terminate_backend(pid, timeout);
    END IF;
    WHILE is_signaled AND timeout > 0 AND pid < 1073741824 LOOP
        PERFORM pg_stat_clear_snapshot();
        EXIT WHEN NOT EXISTS (SELECT FROM pg_stat_get_activity(pid));
        IF clock_timestamp() > deadline THEN
            RAISE WARNING 'backend with PID % did not terminate within % milliseconds', pid, timeout;
            RETURN false;
        END IF;
        PERFORM pg_sleep(0.01);
    END LOOP;
    RETURN is_signaled;
END $$;
