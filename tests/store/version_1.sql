BEGIN TRANSACTION;
CREATE TABLE artefacts (
	digest VARCHAR(64) NOT NULL, 
	kind VARCHAR(64) NOT NULL, 
	size_bytes INTEGER NOT NULL, 
	packed BLOB NOT NULL, 
	created_at BIGINT NOT NULL, 
	PRIMARY KEY (digest)
);
INSERT INTO "artefacts" VALUES('59498c6c155bba92a3d0f3400bc14afb8c451adbe23445317b2228c4521c0964','source',10,X'789C2BCE2F2D4A4E55C8CF4B0500168E03F4',1793523602000000);
INSERT INTO "artefacts" VALUES('29799439047cd0fef2f0934f1731a73d57994dcc12b33a7f85440556b7e19329','source',10,X'789C2BCE2F2D4A4E552829CF070016B9040C',1793523604000000);
INSERT INTO "artefacts" VALUES('f7d654de5013e071fd83135e839cc6c40ff2297136e266ee9e777dc52607c3d7','source',12,X'789C2BCE2F2D4A4E5528C9284A4D05001FCD04CA',1793523606000000);
CREATE TABLE candidates (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	source_digest VARCHAR(64) NOT NULL, 
	language VARCHAR(16) NOT NULL, 
	launch TEXT NOT NULL, 
	defines JSON NOT NULL, 
	parents JSON NOT NULL, 
	levers JSON NOT NULL, 
	generation INTEGER NOT NULL, 
	proposer VARCHAR(64) NOT NULL, 
	canonical VARCHAR(64), 
	notes JSON NOT NULL, 
	created_at BIGINT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (run_id, digest), 
	FOREIGN KEY(run_id) REFERENCES runs (id), 
	FOREIGN KEY(source_digest) REFERENCES artefacts (digest)
);
INSERT INTO "candidates" VALUES(1,1,'d1','59498c6c155bba92a3d0f3400bc14afb8c451adbe23445317b2228c4521c0964','cuda','','{}','[]','{"WARPS": [4, 8]}',0,'levers',NULL,'{}',1793523603000000);
INSERT INTO "candidates" VALUES(2,1,'d2','29799439047cd0fef2f0934f1731a73d57994dcc12b33a7f85440556b7e19329','cuda','','{}','[1]','{}',1,'levers',NULL,'{}',1793523605000000);
INSERT INTO "candidates" VALUES(3,1,'d3','f7d654de5013e071fd83135e839cc6c40ff2297136e266ee9e777dc52607c3d7','cuda','','{}','[1]','{}',1,'levers',NULL,'{}',1793523607000000);
CREATE TABLE evaluations (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	candidate_id INTEGER NOT NULL, 
	"key" VARCHAR(64) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	priority INTEGER NOT NULL, 
	request JSON NOT NULL, 
	owner TEXT, 
	token INTEGER NOT NULL, 
	attempts INTEGER NOT NULL, 
	lease_until BIGINT, 
	heartbeat_at BIGINT, 
	status VARCHAR(32), 
	result JSON, 
	cached BOOLEAN NOT NULL, 
	seconds FLOAT NOT NULL, 
	created_at BIGINT NOT NULL, 
	finished_at BIGINT, 
	PRIMARY KEY (id), 
	UNIQUE (run_id, candidate_id, "key"), 
	FOREIGN KEY(run_id) REFERENCES runs (id), 
	FOREIGN KEY(candidate_id) REFERENCES candidates (id)
);
INSERT INTO "evaluations" VALUES(1,1,1,'k1','DONE',0,'{"for": "search"}','driver',1,1,NULL,1793523611000000,'PASSED','{"est": 20855}',0,1.5,1793523608000000,1793523612000000);
INSERT INTO "evaluations" VALUES(2,1,2,'k2','QUEUED',2,'{"for": "search"}',NULL,0,0,NULL,NULL,NULL,NULL,0,0.0,1793523609000000,NULL);
INSERT INTO "evaluations" VALUES(3,1,3,'k3','LEASED',0,'{"for": "search"}','driver',1,1,1793523674000000,1793523614000000,NULL,NULL,0,0.0,1793523610000000,NULL);
CREATE TABLE insights (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	candidate_id INTEGER NOT NULL, 
	hypothesis TEXT NOT NULL, 
	levers JSON NOT NULL, 
	predicted JSON NOT NULL, 
	"before" JSON NOT NULL, 
	"after" JSON NOT NULL, 
	outcome VARCHAR(16) NOT NULL, 
	note TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (run_id, candidate_id, hypothesis), 
	FOREIGN KEY(run_id) REFERENCES runs (id), 
	FOREIGN KEY(candidate_id) REFERENCES candidates (id)
);
INSERT INTO "insights" VALUES(1,1,2,'more warps','{"WARPS": [4, 8]}','{"est": -0.1}','{"est": 100}','{"est": 120}','refuted','',1793523615000000);
CREATE TABLE runs (
	id INTEGER NOT NULL, 
	kind VARCHAR(64) NOT NULL, 
	task TEXT NOT NULL, 
	chip VARCHAR(64) NOT NULL, 
	seed BIGINT NOT NULL, 
	settings JSON NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	progress JSON NOT NULL, 
	created_at BIGINT NOT NULL, 
	finished_at BIGINT, 
	PRIMARY KEY (id)
);
INSERT INTO "runs" VALUES(1,'evolve','sdpa','l4',7,'{"top": 3}','running','{}',1793523601000000,NULL);
CREATE TABLE schema_version (
	id INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "schema_version" VALUES(1,1);
CREATE TABLE verdicts (
	"key" VARCHAR(64) NOT NULL, 
	status VARCHAR(32) NOT NULL, 
	result JSON NOT NULL, 
	created_at BIGINT NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "verdicts" VALUES('k1','PASSED','{"est": 20855}',1793523613000000);
CREATE INDEX candidates_by_canonical ON candidates (run_id, canonical);
CREATE INDEX evaluations_by_state ON evaluations (state, priority, id);
COMMIT;
