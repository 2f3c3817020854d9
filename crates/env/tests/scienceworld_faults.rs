//! Machines that are killed, suspended, starved or worn out while episodes run in them: the episodes go on as if nothing
//! had happened, the incident is counted, and no process is left behind.

mod scienceworld;

use std::sync::Arc;
use std::time::{Duration, Instant};

use lens_env::scienceworld::catalog::TaskType;
use lens_env::scienceworld::gateway::Argument;
use lens_env::scienceworld::{ScienceWorld, ScienceWorldEnvironment};
use lens_env::{Environment, Task, View};
use rustix::process::{Pid, Signal};

const ACTIONS: [&str; 8] = [
    "teleport to kitchen",
    "open cupboard",
    "pick up thermometer",
    "open freezer",
    "look in freezer",
    "wait1",
    "teleport to greenhouse",
    "look around",
];

fn task(variation: i32) -> Task {
    // Bees, flowers and pots of the same name: chance matters here.
    TaskType::find("grow-fruit").expect("a task of that name").task(variation)
}

fn one_machine() -> Option<Arc<ScienceWorld>> {
    scienceworld::available().then(|| {
        scienceworld::open(|options| {
            options.limits.hosts = 1;
            options.limits.call = Duration::from_secs(20);
        })
    })
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Whether a process is there and is no zombie.
fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z'))
}

fn await_gone(pids: &[u32]) {
    let end = Instant::now() + Duration::from_secs(20);
    while let Some(pid) = pids.iter().find(|pid| is_alive(**pid)) {
        assert!(Instant::now() < end, "process {pid} is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn pids(benchmark: &ScienceWorld) -> Vec<u32> {
    benchmark.pool().hosts().iter().map(|host| host.jvm().pid()).collect()
}

/// Plays the course, with something happening to the machine before the action in the middle.
fn play(
    environment: &mut ScienceWorldEnvironment,
    variation: i32,
    happening: impl FnOnce(&ScienceWorldEnvironment),
) -> Vec<View> {
    let mut views = vec![environment.reset(&task(variation)).expect("it loads")];
    let mut happening = Some(happening);
    for (turn, action) in ACTIONS.iter().enumerate() {
        if turn == ACTIONS.len() / 2
            && let Some(happening) = happening.take()
        {
            happening(environment);
        }
        views.push(environment.step(action).expect("it goes on"));
    }
    views
}

#[test]
fn a_killed_machine_is_replaced_and_the_episode_goes_on() {
    let Some(benchmark) = one_machine() else { return };
    let undisturbed = play(&mut benchmark.scienceworld_environment(), 1, |_| {});
    let mut bystander = benchmark.scienceworld_environment();
    let before = bystander.reset(&task(2)).unwrap();
    let mut victim = None;
    let mut environment = benchmark.scienceworld_environment();
    let disturbed = play(&mut environment, 1, |environment| {
        let pid = environment.pid().expect("it runs");
        signal(pid, Signal::KILL);
        victim = Some(pid);
    });
    assert_eq!(disturbed, undisturbed);
    assert_ne!(environment.pid(), victim);
    // Another episode in the same machine was lost with it, and comes back when it is needed.
    assert_eq!(bystander.view().unwrap(), before);
    bystander.step("look around").unwrap();
    let incidents = benchmark.incidents();
    assert_eq!((incidents.died, incidents.failures()), (1, 1), "{incidents:?}");
    assert_eq!(benchmark.replay_report().episodes_resumed, 2);
    await_gone(&[victim.unwrap()]);
}

#[test]
fn a_suspended_machine_is_noticed_and_replaced() {
    let Some(benchmark) = scienceworld::available().then(|| {
        scienceworld::open(|options| {
            options.limits.hosts = 1;
            options.limits.call = Duration::from_secs(10);
        })
    }) else {
        return;
    };
    let undisturbed = play(&mut benchmark.scienceworld_environment(), 3, |_| {});
    let mut victim = None;
    let mut environment = benchmark.scienceworld_environment();
    let disturbed = play(&mut environment, 3, |environment| {
        let pid = environment.pid().expect("it runs");
        signal(pid, Signal::STOP);
        victim = Some(pid);
    });
    assert_eq!(disturbed, undisturbed);
    let incidents = benchmark.incidents();
    assert!(incidents.hung >= 1, "{incidents:?}");
    await_gone(&[victim.unwrap()]);
}

#[test]
fn a_machine_out_of_memory_is_replaced_by_a_larger_one() {
    let Some(benchmark) = one_machine() else { return };
    let undisturbed = play(&mut benchmark.scienceworld_environment(), 4, |_| {});
    let heap = benchmark.pool().limits().heap_mib;
    let disturbed = play(&mut benchmark.scienceworld_environment(), 4, |_| {
        let hosts = benchmark.pool().hosts();
        let mut connection = hosts[0].jvm().connect().unwrap();
        let too_much = Argument::Int(i32::try_from(heap).unwrap() * 1024 * 1024);
        let error = connection.construct("java.util.ArrayList", &[too_much]).unwrap_err();
        assert!(error.is_fatal(), "{error}");
    });
    assert_eq!(disturbed, undisturbed);
    let incidents = benchmark.incidents();
    assert_eq!((incidents.out_of_memory, incidents.failures()), (1, 1), "{incidents:?}");
    assert_eq!(benchmark.pool().hosts()[0].jvm().limits().heap_mib, 2 * heap);
}

#[test]
fn a_heap_too_small_to_load_a_task_grows() {
    if !scienceworld::available() {
        return;
    }
    let benchmark = scienceworld::open(|options| {
        options.limits.hosts = 1;
        options.limits.heap_mib = 12;
    });
    let view = benchmark.scienceworld_environment().reset(&task(0)).unwrap();
    assert!(view.task.starts_with("Your task is to grow"), "{}", view.task);
    assert!(benchmark.incidents().out_of_memory >= 1, "{:?}", benchmark.incidents());
}

#[test]
fn a_machine_that_has_done_enough_is_let_go() {
    if !scienceworld::available() {
        return;
    }
    let benchmark = scienceworld::open(|options| {
        options.limits.hosts = 1;
        options.limits.loads = 3;
    });
    let mut environment = benchmark.scienceworld_environment();
    let first = environment.reset(&task(0)).unwrap();
    let old = environment.pid().unwrap();
    let mut again = 0;
    while environment.pid() == Some(old) {
        assert_eq!(environment.reset(&task(0)).unwrap(), first);
        again += 1;
        assert!(again < 5, "the machine is never let go");
    }
    let incidents = benchmark.incidents();
    assert!(incidents.retired >= 1, "{incidents:?}");
    assert_eq!(incidents.failures(), 0, "{incidents:?}");
    await_gone(&[old]);
}

#[test]
fn sixteen_episodes_at_once_survive_the_loss_of_a_machine() {
    if !scienceworld::available() {
        return;
    }
    let benchmark = scienceworld::open(|_| {});
    let alone: Vec<Vec<View>> = (0..16)
        .map(|variation| play(&mut benchmark.scienceworld_environment(), variation, |_| {}))
        .collect();
    let together: Vec<Vec<View>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|variation| {
                let benchmark = &benchmark;
                scope.spawn(move || {
                    play(&mut benchmark.scienceworld_environment(), variation, |environment| {
                        if variation == 7 {
                            signal(environment.pid().expect("it runs"), Signal::KILL);
                        }
                    })
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert_eq!(together, alone);
    let incidents = benchmark.incidents();
    assert_eq!((incidents.died, incidents.failures()), (1, 1), "{incidents:?}");
    assert!(benchmark.replay_report().episodes_resumed >= 1);
}

#[test]
fn no_process_outlives_the_benchmark_or_a_panic() {
    if !scienceworld::available() {
        return;
    }
    let benchmark = scienceworld::open(|_| {});
    let mut environment = benchmark.scienceworld_environment();
    environment.reset(&task(0)).unwrap();
    let running = pids(&benchmark);
    assert!(!running.is_empty() && running.iter().all(|pid| is_alive(*pid)));
    drop(environment);
    drop(benchmark);
    await_gone(&running);

    let (sender, receiver) = std::sync::mpsc::channel();
    let panicked = std::thread::spawn(move || {
        let benchmark = scienceworld::open(|options| options.limits.hosts = 1);
        let mut environment = benchmark.scienceworld_environment();
        environment.reset(&task(0)).unwrap();
        sender.send(pids(&benchmark)).unwrap();
        panic!("on purpose, with an episode running");
    });
    let running = receiver.recv().unwrap();
    assert!(panicked.join().is_err());
    await_gone(&running);
}
