-- SQLite builds a tree in memory for every `in` with more than two values, for every row that is written, and a check is evaluated for every
-- row that is written: seven trees for each message, a quarter of the writer's time and more. The same conditions without a list need none.
-- Nothing that is stored changes, so the tables stay where they are (https://sqlite.org/lang_altertable.html, "simpler and faster procedure").

pragma writable_schema = on;

update sqlite_schema
   set sql = replace(sql, 'status in (''pending'', ''sending'', ''succeeded'', ''failed'', ''aborted'')',
       'status = ''pending'' or status = ''sending'' or status = ''succeeded'' or status = ''failed'' or status = ''aborted''')
 where type = 'table' and name = 'outbox';

update sqlite_schema
   set sql = replace(sql, 'status in (''accepted'', ''succeeded'', ''failed'')',
       'status = ''accepted'' or status = ''succeeded'' or status = ''failed''')
 where type = 'table' and name = 'idempo_ledger';

update sqlite_schema
   set sql = replace(replace(sql, 'state in (''queued'', ''throttled'', ''ready'', ''delivered'', ''failed'', ''cancelled'')',
       'state = ''queued'' or state = ''throttled'' or state = ''ready'' or state = ''delivered'' or state = ''failed'' or state = ''cancelled'''),
       'state in (''delivered'', ''failed'', ''cancelled'')', 'state = ''delivered'' or state = ''failed'' or state = ''cancelled''')
 where type = 'table' and name = 'messages';

update sqlite_schema
   set sql = replace(sql, 'what in (''delivered'', ''error'', ''failed'', ''lapsed'', ''cancelled'')',
       'what = ''delivered'' or what = ''error'' or what = ''failed'' or what = ''lapsed'' or what = ''cancelled''')
 where type = 'table' and name = 'message_log';

update sqlite_schema
   set sql = replace(sql, 'status in (''pending'', ''success'', ''failed'', ''skipped'')',
       'status = ''pending'' or status = ''success'' or status = ''failed'' or status = ''skipped''')
 where type = 'table' and name = 'webhook_events';

pragma writable_schema = reset;
