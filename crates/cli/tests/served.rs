//! The program with servers: a run whose teacher, student or learner is elsewhere, tried out, trained and resumed. The
//! servers speak vLLM's protocol and answer with the laboratory's real models; the worker is the real one.

#[expect(dead_code, reason = "the engine's own tests use the rest")]
#[path = "../../engine/tests/remote/inference.rs"]
mod inference;
#[expect(dead_code, reason = "the engine's own tests use the rest")]
#[path = "../../engine/tests/remote/server.rs"]
mod server;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use inference::Fake;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the project")
}

fn lens(arguments: &[String]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_lens"))
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// A command with the laboratory's configuration, made small, and more settings.
fn command(verb: &[&str], output: &Path, settings: &[String]) -> Vec<String> {
    let small = [
        "student.path=assets/lab/student-large",
        "task.turn_limit=6",
        "rollout.batch_size=4",
        "rollout.max_prompt_tokens=1500",
        "rollout.max_response_tokens=64",
        "eval.max_tokens=64",
        "eval.tasks_during_training=2",
        "train.steps=3",
        "train.batch_size=6",
        "train.save_interval=1",
        "loss.estimator=rkl_topk",
        "loss.top_k=16",
    ];
    let mut all = words(verb);
    all.push("configs/laboratory.toml".to_owned());
    let output = format!("output={}", output.display());
    for setting in small
        .iter()
        .map(|&setting| setting.to_owned())
        .chain([output])
        .chain(settings.iter().cloned())
    {
        all.extend(["--set".to_owned(), setting]);
    }
    all
}

fn wide(name: &str) -> Fake {
    let mut fake = Fake::new(name);
    fake.context = 2048;
    fake
}

#[test]
fn a_run_with_a_served_teacher() {
    let folder = tempfile::tempdir().expect("a folder");
    let (teacher, _) = wide("teacher").vllm();
    let settings =
        vec!["teacher.engine=vllm".to_owned(), format!("teacher.urls=[\"{}\"]", teacher.url)];
    let (code, text) = lens(&command(&["engine", "check"], folder.path(), &settings));
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("everything works") && text.contains("teacher: scores: 16 favorites"),
        "{text}"
    );
    let (code, text) = lens(&command(&["train"], folder.path(), &settings));
    assert_eq!(code, Some(0), "{text}");
    let metrics = std::fs::read_to_string(folder.path().join("laboratory/seed-42/metrics.jsonl"))
        .expect("written");
    assert!(metrics.contains("top_k"), "the divergence is recorded");
    let native = words(&["name=native", "optimizer.lr=5e-6"]);
    let (code, text) = lens(&command(&["train"], folder.path(), &native));
    assert_eq!(code, Some(0), "{text}");
    let run = |name: &str| folder.path().join(name).join("seed-42").display().to_string();
    let compare = |first: &str, second: &str| {
        let (code, text) = lens(&words(&["engine", "compare", &run(first), &run(second)]));
        assert_eq!(code, Some(0), "{text}");
        let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect();
        text.lines()
            .filter(|line| line.starts_with("| 1 "))
            .map(cells)
            .collect::<Vec<Vec<String>>>()
    };
    let [same, other] = [compare("laboratory", "laboratory"), compare("laboratory", "native")];
    assert_eq!(same[0][8..10], ["0.0e0", "0.0e0"], "{same:?}");
    // The student plays here in both runs, the teacher's lists come over HTTP in one of them, and the other one learns at
    // half the rate: the first weights lie half the way apart.
    assert_eq!((&other[1][12], &other[1][4]), (&same[1][12], &same[1][4]), "{other:?}");
    let apart: f64 = other[0][9].parse().expect("a number");
    assert!((apart - 0.5).abs() < 0.02, "{other:?}");
    // The run's folder never holds a key, but says where the server was.
    let config = std::fs::read_to_string(folder.path().join("laboratory/seed-42/config.toml"))
        .expect("written");
    assert!(config.contains(&teacher.url));
}

#[test]
fn engines_that_do_not_fit_are_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    for (settings, said) in [
        (vec!["student.engine=vllm"], "student.engine"),
        (vec!["teacher.engine=vllm"], "teacher.urls"),
        (vec!["teacher.engine=torch"], "teacher.engine"),
        (vec!["learner.engine=vllm"], "learner.engine"),
        (vec!["learner.engine=torch"], "learner.url"),
        (vec!["learner.holds_teacher=true"], "learner.holds_teacher"),
        (vec!["learner.transfer=nccl"], "learner.transfer"),
        (
            vec!["teacher.engine=vllm", "teacher.urls=[\"http://h:1\"]", "loss.estimator=rkl_full"],
            "loss.estimator",
        ),
        (
            vec![
                "teacher.engine=vllm",
                "teacher.urls=[\"http://h:1\"]",
                "validate.temperature=0.5",
            ],
            "validate.temperature",
        ),
        (vec!["teacher.urls=[\"http://h:1\"]"], "teacher.urls"),
    ] {
        let (code, text) = lens(&command(&["config", "check"], folder.path(), &words(&settings)));
        assert_eq!(code, Some(1), "{settings:?}: {text}");
        assert!(text.contains(said), "{settings:?}: {text}");
    }
}

#[test]
fn a_server_that_is_not_there_is_named_before_anything_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = words(&["teacher.engine=vllm", "teacher.urls=[\"http://127.0.0.1:9\"]"]);
    for verb in [&["engine", "check"][..], &["train"]] {
        let (code, text) = lens(&command(verb, folder.path(), &settings));
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("http://127.0.0.1:9"), "{text}");
    }
    assert!(
        std::fs::read_dir(folder.path()).expect("there").next().is_none(),
        "nothing was written"
    );
}

#[test]
fn models_that_are_nowhere_come_with_five_steps() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = format!("output={}", folder.path().display());
    let (code, text) =
        lens(&words(&["train", "configs/paper/alfworld-qwen3-1.7b.toml", "--set", &output]));
    assert_eq!(code, Some(1), "{text}");
    let numbered =
        |line: &&str| line.trim_start_matches("hint: ").starts_with(|c: char| c.is_ascii_digit());
    assert_eq!(text.lines().filter(numbered).count(), 5, "{text}");
    for part in ["Qwen/Qwen3-1.7B", "Qwen/Qwen3-32B", "1. ", "5. ", "engine launch", "engine check"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn one_part_can_be_started_alone() {
    let launch = |part: &str| {
        lens(&words(&["engine", "launch", "deploy/run.toml", "--print", "--only", part]))
    };
    let (code, text) = launch("learner");
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("torchrun") && !text.contains("vllm serve"), "{text}");
    let (code, text) = launch("student-9");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("student-9") && text.contains("teacher-0, learner"), "{text}");
}

#[test]
fn what_deploy_holds_is_what_launch_prints() {
    for (config, form, file) in [
        ("run.toml", "compose", "compose.yaml"),
        ("run-two-nodes.toml", "slurm", "slurm.sh"),
        ("run.toml", "shell", "launch.sh"),
    ] {
        let config = format!("deploy/{config}");
        let (code, text) =
            lens(&words(&["engine", "launch", &config, "--print", form, "--set", "output=/runs"]));
        assert_eq!(code, Some(0), "{text}");
        let path = root().join("deploy").join(file);
        if std::env::var_os("LENS_RENDER").is_some() {
            std::fs::write(&path, &text).expect("written");
        }
        assert_eq!(
            std::fs::read_to_string(&path).expect("rendered"),
            text,
            "{file}: render it again with LENS_RENDER=1"
        );
    }
}

struct Worker {
    child: Child,
    url: String,
}

impl Drop for Worker {
    fn drop(&mut self) {
        // SIGTERM lets torchrun end its ranks, too.
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.child.wait();
    }
}

fn worker(token: &Path) -> Option<Worker> {
    worker_of(token, 1)
}

/// A worker of one rank or, under torchrun, of several.
fn worker_of(token: &Path, ranks: usize) -> Option<Worker> {
    let venv = std::env::var_os("LENS_VENV").map(PathBuf::from);
    let python = venv.map_or_else(|| PathBuf::from("python3"), |venv| venv.join("bin/python"));
    let has_torch = Command::new(&python)
        .args(["-c", "import torch, transformers"])
        .stderr(Stdio::null())
        .status();
    if !has_torch.is_ok_and(|status| status.success()) {
        let required = std::env::var_os("LENS_REQUIRE_TORCH").is_some_and(|value| value == "1");
        assert!(!required, "LENS_REQUIRE_TORCH=1, but {} has no torch", python.display());
        let _ = writeln!(
            std::io::stderr(),
            "skipped: no Python with torch and transformers (LENS_VENV)"
        );
        return None;
    }
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = free.expect("a free port").port().to_string();
    let mut command = Command::new(python);
    if ranks > 1 {
        let count = ranks.to_string();
        command.args(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", &count]);
    } else {
        command.envs([
            ("RANK", "0"),
            ("LOCAL_RANK", "0"),
            ("WORLD_SIZE", "1"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", &port),
        ]);
    }
    let mut child = command
        .args([
            "-m",
            "lens_worker",
            "--port",
            "0",
            "--device",
            "cpu",
            "--compute",
            "f32",
            "--student",
        ])
        .arg(inference::lab("student-large"))
        .arg("--token-file")
        .arg(token)
        .env("PYTHONPATH", root().join("python"))
        .env("OMP_NUM_THREADS", "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("python starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("its address");
    let said: serde_json::Value = serde_json::from_str(&line).expect("one line of JSON");
    Some(Worker { child, url: said["listening"].as_str().expect("an address").to_owned() })
}

#[test]
fn a_served_student_learns_in_the_worker_and_goes_on_after_both_were_restarted() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    std::fs::write(&token, "secret-word").expect("written");
    let Some(first) = worker(&token) else { return };
    let (student, fake) = wide("student-large").vllm();
    let (teacher, _) = wide("teacher").vllm();
    let settings = |worker: &Worker, student: &server::Server| {
        vec![
            "student.engine=vllm".to_owned(),
            format!("student.urls=[\"{}\"]", student.url),
            "teacher.engine=vllm".to_owned(),
            format!("teacher.urls=[\"{}\"]", teacher.url),
            "learner.engine=torch".to_owned(),
            format!("learner.url={}", worker.url),
            format!("learner.key_file={}", token.display()),
        ]
    };
    let runs = folder.path().join("runs");
    let (code, text) = lens(
        &[command(&["engine", "check"], &runs, &settings(&first, &student)), words(&["--publish"])]
            .concat(),
    );
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("publish and read back: done") && text.contains("worker: torch"),
        "{text}"
    );
    let (code, text) = lens(&command(&["train"], &runs, &settings(&first, &student)));
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(*fake.label.lock().expect("held"), "3", "the last weights are published");
    drop(first);
    drop(student);
    let second = worker(&token).expect("it started before");
    let (student, fake) = wide("student-large").vllm();
    let run = runs.join("laboratory/seed-42");
    let mut again = words(&["train", "--resume"]);
    again.push(run.display().to_string());
    for setting in [
        format!("learner.url={}", second.url),
        format!("student.urls=[\"{}\"]", student.url),
        "train.steps=5".to_owned(),
    ] {
        again.extend(["--set".to_owned(), setting]);
    }
    let (code, text) = lens(&again);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(*fake.label.lock().expect("held"), "5");
    let loaded = fake.loaded.lock().expect("held").clone();
    let versions: Vec<&str> = loaded.iter().map(|folder| &folder[folder.len() - 2..]).collect();
    // The fresh worker's own weights first, then those of the checkpoint.
    assert_eq!(versions[..2], ["00", "03"], "resumed from the third step: {loaded:?}");
    for path in walk(&run) {
        let bytes = std::fs::read(&path).expect("readable");
        let found = bytes.windows(11).any(|part| part == b"secret-word");
        assert!(!found, "{} holds the key", path.display());
    }
}

#[test]
fn a_batch_explored_while_the_worker_trains_resumes_to_the_same_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    std::fs::write(&token, "secret-word").expect("written");
    let Some(first) = worker_of(&token, 2) else { return };
    let (student, fake) = wide("student-large").vllm();
    let (teacher, _) = wide("teacher").vllm();
    let settings = |worker: &Worker| {
        vec![
            "student.engine=vllm".to_owned(),
            format!("student.urls=[\"{}\"]", student.url),
            "teacher.engine=vllm".to_owned(),
            format!("teacher.urls=[\"{}\"]", teacher.url),
            "learner.engine=torch".to_owned(),
            format!("learner.url={}", worker.url),
            format!("learner.key_file={}", token.display()),
            "train.overlap=true".to_owned(),
            "train.steps=4".to_owned(),
            "locate.clock=full".to_owned(),
        ]
    };
    let run = |name: &str| folder.path().join(name).join("laboratory/seed-42");
    let (code, text) = lens(&command(&["train"], &folder.path().join("whole"), &settings(&first)));
    assert_eq!(code, Some(0), "{text}");
    drop(first);
    let metrics = |name: &str| {
        let path = run(name).join("metrics.jsonl");
        std::fs::read_to_string(path).unwrap_or_default()
    };
    let versions: Vec<u64> = metrics("whole")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .filter(|line: &serde_json::Value| line["kind"] == "batch")
        .map(|batch| batch["version"].as_u64().expect("a version"))
        .collect();
    assert_eq!(versions[..2], [0, 0], "the second batch was explored by the first weights");
    // Killed without a word once a checkpoint is there; the worker dies too.
    let second = worker_of(&token, 2).expect("it started before");
    let arguments = command(&["train"], &folder.path().join("parted"), &settings(&second));
    let mut killed = Command::new(env!("CARGO_BIN_EXE_lens"))
        .args(&arguments)
        .current_dir(root())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    let checkpoint = run("parted").join("checkpoints/step-000002");
    while !checkpoint.exists() && killed.try_wait().expect("asked").is_none() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let _ = killed.kill();
    let _ = killed.wait();
    drop(second);
    assert!(checkpoint.exists());
    let third = worker_of(&token, 2).expect("it started before");
    let mut again = words(&["train", "--resume", &run("parted").display().to_string()]);
    again.extend(words(&["--set", &format!("learner.url={}", third.url)]));
    let (code, text) = lens(&again);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(*fake.label.lock().expect("held"), "4");
    assert_eq!(metrics("whole"), metrics("parted"));
    let model = |name: &str| {
        let path = run(name).join("checkpoints/step-000004/model/model.safetensors");
        std::fs::read(path).expect("saved")
    };
    assert!(model("whole") == model("parted"), "the same weights");
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("readable").flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(walk(&path)) } else { found.push(path) }
    }
    found
}
