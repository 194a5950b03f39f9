/* SQLite's amalgamation as a library: a database in memory with indices, triggers, recursion, window functions, JSON and full text. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

static int row(void *unused, int n, char **values, char **names) {
    (void)unused;
    for (int i = 0; i < n; i++) printf("%s%s=%s", i ? "|" : "", names[i], values[i] ? values[i] : "NULL");
    putchar('\n');
    return 0;
}

static const char *const statements[] = {
    "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, v REAL)",
    "CREATE INDEX by_name ON t(name)",
    "CREATE TABLE log(id, name)",
    "CREATE TRIGGER added AFTER INSERT ON t BEGIN INSERT INTO log VALUES(new.id, upper(new.name)); END",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
    " INSERT INTO t SELECT i, printf('name %05d', (i * 7919) % 20000), i / 3.0 FROM n",
    "SELECT count(*), sum(v), min(name), max(name) FROM t",
    "SELECT name FROM log ORDER BY name DESC LIMIT 3",
    "SELECT name, id, sum(v) OVER (ORDER BY id ROWS 2 PRECEDING) s FROM t WHERE name LIKE 'name 000%' ORDER BY id LIMIT 5",
    "SELECT json_extract('{\"a\":[1,2,{\"b\":3.5}]}', '$.a[2].b') j, json_array_length('[1,2,3]') n",
    "CREATE VIRTUAL TABLE f USING fts5(body)",
    "INSERT INTO f VALUES('the quick brown fox'), ('jumps over'), ('the lazy dog')",
    "SELECT rowid, highlight(f, 0, '[', ']') h FROM f WHERE f MATCH 'the' ORDER BY rank, rowid",
    "BEGIN", "DELETE FROM t WHERE id % 2", "ROLLBACK",
    "SELECT count(*) FROM t",
    "EXPLAIN QUERY PLAN SELECT * FROM t WHERE name = 'x'",
    "SELECT hex(sha), length(zeroblob(1000)) FROM (SELECT x'00ff' sha)",
    "PRAGMA integrity_check",
    NULL,
};

int main(void) {
    sqlite3 *db;
    if (sqlite3_open(":memory:", &db) != SQLITE_OK) return 1;
    printf("%s\n", sqlite3_libversion());
    for (int i = 0; statements[i]; i++) {
        char *error = NULL;
        if (sqlite3_exec(db, statements[i], row, NULL, &error) != SQLITE_OK) {
            printf("%s: %s\n", statements[i], error);
            return 2;
        }
    }
    char *error = NULL;
    int status = sqlite3_exec(db, "SELEC 1", row, NULL, &error);
    printf("%d %s\n", status, error);
    sqlite3_free(error);
    return sqlite3_close(db);
}
