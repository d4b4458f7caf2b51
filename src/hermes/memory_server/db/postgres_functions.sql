-- What `matching` asks of a database, as the functions of `functions.py` answer it. Statements end with a line "--;".
CREATE FUNCTION instr(text, text) RETURNS integer LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT strpos($1, $2) $$
--;
CREATE FUNCTION folded(text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT replace(replace(lower($1 COLLATE {folding}), 'ß', 'ss'), 'ς', 'σ') $$
--;
CREATE FUNCTION holds_text(content text, part text) RETURNS boolean LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT strpos(folded(content), folded(part)) > 0 $$
--;
CREATE FUNCTION same_json(value jsonb, pattern jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT value = pattern $$
--;
CREATE FUNCTION holds_value(value jsonb, pattern jsonb) RETURNS boolean LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    key text;
    wanted jsonb;
BEGIN
    IF jsonb_typeof(pattern) = 'object' THEN
        IF jsonb_typeof(value) <> 'object' THEN RETURN false; END IF;
        FOR key, wanted IN SELECT * FROM jsonb_each(pattern) LOOP
            IF NOT (value ? key AND holds_value(value -> key, wanted)) THEN RETURN false; END IF;
        END LOOP;
        RETURN true;
    END IF;
    IF jsonb_typeof(pattern) = 'array' THEN
        IF jsonb_typeof(value) <> 'array' THEN RETURN false; END IF;
        RETURN NOT EXISTS (
            SELECT 1 FROM jsonb_array_elements(pattern) AS w(one)
            WHERE NOT EXISTS (SELECT 1 FROM jsonb_array_elements(value) AS v(item) WHERE holds_value(v.item, w.one))
        );
    END IF;
    IF jsonb_typeof(value) = 'array' THEN
        RETURN EXISTS (SELECT 1 FROM jsonb_array_elements(value) AS v(item) WHERE v.item = pattern);
    END IF;
    RETURN value = pattern;
END $$
--;
CREATE FUNCTION holds_json(document text, pattern text) RETURNS boolean LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT holds_value(document::jsonb, pattern::jsonb) $$
--;
CREATE FUNCTION holds_any(document text, given text) RETURNS boolean LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT document::jsonb ?| ARRAY(SELECT jsonb_array_elements_text(given::jsonb)) $$
--;
CREATE FUNCTION json_words(value jsonb) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT value #>> '{}' $$
--;
CREATE FUNCTION json_number(value jsonb) RETURNS numeric LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
SELECT CASE
    WHEN jsonb_typeof(value) = 'number' THEN (value #>> '{}')::numeric
    WHEN jsonb_typeof(value) = 'string' AND (value #>> '{}') ~ '^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\s*$'
        THEN btrim(value #>> '{}')::numeric
END
$$
--;
CREATE FUNCTION compares_json(document text, key text, op text, operand text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    value jsonb := document::jsonb -> key;
    wanted jsonb := operand::jsonb;
    said text;
    given text := CASE WHEN jsonb_typeof(wanted) = 'null' THEN 'null' ELSE json_words(wanted) END;
    number numeric;
    bound numeric := json_number(wanted);
    is_null boolean := value IS NULL OR jsonb_typeof(value) = 'null';
BEGIN
    said := CASE WHEN is_null THEN 'null' ELSE json_words(value) END COLLATE "C";
    number := json_number(value);
    IF op = 'ne' THEN
        RETURN NOT (said = given OR (number IS NOT NULL AND bound IS NOT NULL AND number = bound));
    END IF;
    IF is_null THEN RETURN NULL; END IF;
    IF op = 'in' THEN
        RETURN EXISTS (SELECT 1 FROM jsonb_array_elements(wanted) AS w(one) WHERE coalesce(json_words(w.one), 'null') = said);
    END IF;
    IF op = 'contains' AND jsonb_typeof(value) IN ('object', 'array') THEN
        RETURN holds_value(value, wanted);
    END IF;
    IF op IN ('contains', 'icontains') THEN
        RETURN holds_text(said, given);
    END IF;
    IF bound IS NULL THEN
        RETURN CASE op WHEN 'gte' THEN said >= given COLLATE "C" WHEN 'lte' THEN said <= given COLLATE "C"
            WHEN 'gt' THEN said > given COLLATE "C" ELSE said < given COLLATE "C" END;
    END IF;
    RETURN CASE op WHEN 'gte' THEN number >= bound WHEN 'lte' THEN number <= bound
        WHEN 'gt' THEN number > bound ELSE number < bound END;
END $$
--;
CREATE FUNCTION keyed_hash(letters text) RETURNS text LANGUAGE sql STABLE STRICT
AS $$
SELECT encode(sha256(decode(o.value, 'hex') || sha256(decode(i.value, 'hex') || convert_to(letters, 'UTF8'))), 'hex')
FROM meta AS i, meta AS o WHERE i.name = 'tombstone_inner' AND o.name = 'tombstone_outer'
$$
