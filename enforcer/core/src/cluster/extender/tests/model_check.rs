//! The extender against simulated kubelets, an API server and a scheduler, in any order of what may happen.
//!
//! Kubelets admit pods one by one in the order of their bindings, with the engine under the kubelet's rules.
//! Watches lag behind; states come late, repeated, or damaged; replies to bindings are lost and bindings land
//! late; pods are deleted and force-deleted; the extender, the scheduler and kubelets start again. A kubelet
//! and the extender start again when no binding is on its way: the API server takes milliseconds for one, and
//! a process more than a second to start.

mod kubelet;

use std::collections::{BTreeMap, VecDeque};

use numa_placement::{Allocations, QosClass};
use proptest::prelude::*;

use self::kubelet::{Kubelet, empty_state, pod_number};
use super::*;

const NODES: [&str; 3] = ["n0", "n1", "n2"];

/// What may happen next; numbers choose among what is there.
#[derive(Debug, Clone, Copy)]
enum Step {
    Create,
    Filter(usize),
    /// A call for any pod, of which the scheduler reads no answer: it had given up before, or the pod turns
    /// out to be bound.
    VainFilter(usize, bool),
    Bind(usize),
    /// A binding on its way lands; its reply may be lost.
    Land(usize, bool),
    /// It has no reply, and may land later.
    LoseRequest(usize),
    /// One without a reply lands.
    LandLate(usize),
    /// One without a reply never lands.
    Vanish(usize),
    /// The extender asks for what has become of bindings without a reply.
    Settle,
    KubeletSees(usize),
    /// Containers of a node start.
    Starts(usize),
    Publish(usize),
    /// A state of a node reaches the extender: the newest, or one of the last ones.
    StateArrives(usize, usize),
    DamagedState(usize),
    PodEvent,
    /// A pod is deleted by force: its end has its place among the bindings.
    Delete(usize),
    /// A pod ends; its kubelet frees what it held before the API server shows the end.
    End(usize),
    EndIsShown(usize),
    /// The extender's watch of pods breaks; it lists them.
    Relist,
    /// A scheduler means a pod for a node.
    Nominate(usize, usize),
    RestartExtender,
    RestartScheduler,
    RestartKubelet(usize),
    /// A pod comes to a node by hand.
    Foreign(usize, usize),
    Pass,
    /// So much time that reservations end, and ends of pods are forgotten.
    PassLong,
}

fn step(with_foreign: bool) -> impl Strategy<Value = Step> {
    let any = 0..64usize;
    prop_oneof![
        8 => Just(Step::Create),
        10 => any.clone().prop_map(Step::Filter),
        3 => (any.clone(), prop::bool::ANY).prop_map(|(at, is_late)| Step::VainFilter(at, is_late)),
        10 => any.clone().prop_map(Step::Bind),
        10 => (any.clone(), prop::bool::weighted(0.2)).prop_map(|(at, lost)| Step::Land(at, lost)),
        2 => any.clone().prop_map(Step::LoseRequest),
        2 => any.clone().prop_map(Step::LandLate),
        1 => any.clone().prop_map(Step::Vanish),
        2 => Just(Step::Settle),
        10 => any.clone().prop_map(Step::KubeletSees),
        3 => any.clone().prop_map(Step::Starts),
        6 => any.clone().prop_map(Step::Publish),
        6 => (any.clone(), 0..4usize).prop_map(|(node, back)| Step::StateArrives(node, back)),
        1 => any.clone().prop_map(Step::DamagedState),
        12 => Just(Step::PodEvent),
        2 => any.clone().prop_map(Step::Delete),
        4 => any.clone().prop_map(Step::End),
        4 => any.clone().prop_map(Step::EndIsShown),
        1 => Just(Step::Relist),
        1 => (any.clone(), any.clone()).prop_map(|(pod, node)| Step::Nominate(pod, node)),
        1 => Just(Step::RestartExtender),
        1 => Just(Step::RestartScheduler),
        1 => any.clone().prop_map(Step::RestartKubelet),
        2 => (any.clone(), any).prop_map(move |(node, size)| {
            if with_foreign { Step::Foreign(node, size) } else { Step::Pass }
        }),
        2 => Just(Step::Pass),
        1 => Just(Step::PassLong),
    ]
}

/// An event of the API server's pod watch.
#[derive(Debug, Clone)]
enum ApiEvent {
    /// It has no node; a scheduler may mean one for it.
    Waits(PodObject),
    Bound(PodObject),
    /// It is terminal, and then gone.
    Gone(PodObject),
}

/// A binding that was sent.
#[derive(Debug, Clone)]
struct Sent {
    uid: String,
    node: String,
}

struct World {
    extender: Extender,
    binder: Binder,
    now: Millis,
    calls: u64,
    /// Pods without a node, as the API server has them.
    pending: BTreeMap<String, PodObject>,
    /// Pods with a node that are not gone.
    bound: BTreeMap<String, PodObject>,
    events: Vec<ApiEvent>,
    /// What the extender has seen of them.
    watched: usize,
    kubelets: BTreeMap<&'static str, Kubelet>,
    /// Nodes that the scheduler has chosen, by uid.
    chosen: BTreeMap<String, String>,
    on_its_way: VecDeque<Sent>,
    without_reply: Vec<Sent>,
    /// Pods that have ended and are shown as running.
    ended: Vec<PodObject>,
    created: usize,
    foreign: usize,
    refused: Vec<String>,
}

impl World {
    fn new(binder: Binder) -> Self {
        let kubelets = NODES.map(|name| (name, Kubelet::new(name))).into_iter().collect();
        Self {
            extender: World::empty_extender(binder),
            binder,
            now: 0,
            calls: 0,
            pending: BTreeMap::new(),
            bound: BTreeMap::new(),
            events: Vec::new(),
            watched: 0,
            kubelets,
            chosen: BTreeMap::new(),
            on_its_way: VecDeque::new(),
            without_reply: Vec::new(),
            ended: Vec::new(),
            created: 0,
            foreign: 0,
            refused: Vec::new(),
        }
    }

    fn empty_extender(binder: Binder) -> Extender {
        let mut extender = Extender::new(ExtenderSettings { binder, ..ExtenderSettings::default() });
        for name in NODES {
            extender.observe_node(node(name), 0);
            extender.observe_state(object(name, empty_state(name)), 0);
        }
        extender.begin_pod_list(0);
        extender.end_pod_list(0);
        extender
    }

    fn pick<'a, T>(among: impl Iterator<Item = T> + 'a, at: usize) -> Option<T> {
        let all: Vec<T> = among.collect();
        let number = all.len();
        all.into_iter().nth(at.checked_rem(number)?)
    }

    fn step(&mut self, step: Step) {
        self.now += 10;
        match step {
            Step::Create => {
                let pod = pod_of(pod_number(self.created));
                self.created += 1;
                self.pending.insert(pod.uid.clone(), pod);
            }
            Step::Filter(at) => self.filter(at),
            Step::VainFilter(at, is_late) => self.filter_in_vain(at, is_late),
            Step::Bind(at) => self.bind(at),
            Step::Land(at, is_lost) => self.land(at, is_lost),
            Step::LoseRequest(at) => self.lose(at),
            Step::LandLate(at) => {
                if let Some(sent) = Self::pick(0..self.without_reply.len(), at) {
                    let sent = self.without_reply.remove(sent);
                    self.post(&sent);
                }
            }
            Step::Vanish(at) => {
                if let Some(sent) = Self::pick(0..self.without_reply.len(), at) {
                    self.without_reply.remove(sent);
                }
            }
            Step::Settle => self.settle(),
            Step::KubeletSees(at) => self.kubelet_sees(NODES[at % 3]),
            Step::Starts(at) => self.kubelet_mut(NODES[at % 3]).start_containers(),
            Step::Publish(at) => self.kubelet_mut(NODES[at % 3]).publish(),
            Step::StateArrives(at, back) => self.state_arrives(NODES[at % 3], back),
            Step::DamagedState(at) => self.damaged_state(NODES[at % 3]),
            Step::PodEvent => self.pod_event(),
            Step::Delete(at) => self.delete(at),
            Step::End(at) => self.end(at),
            Step::EndIsShown(at) => self.show_end(at),
            Step::Relist => self.list_pods(),
            Step::Nominate(at, node) => self.nominate(at, NODES[node % 3]),
            Step::RestartExtender => self.restart_extender(),
            Step::RestartScheduler => self.chosen.clear(),
            Step::RestartKubelet(at) => self.restart_kubelet(NODES[at % 3]),
            Step::Foreign(at, size) => {
                let mut request = pod_number(size);
                request.name = PodName::new("default", format!("f{}", self.foreign));
                request.name.uid = request.name.name.clone();
                self.foreign += 1;
                let pod = on(NODES[at % 3], &pod_of(request));
                self.bound.insert(pod.uid.clone(), pod.clone());
                self.events.push(ApiEvent::Bound(pod));
            }
            Step::Pass => self.pass(500),
            Step::PassLong => {
                // The scheduler binds what it has chosen, or gives it up.
                self.chosen.clear();
                if self.binder == Binder::Extender || self.on_its_way.is_empty() {
                    self.watch_all();
                    self.pass(1_000_000);
                }
            }
        }
    }

    fn pass(&mut self, time: Millis) {
        self.now += time;
        self.live();
        self.extender.tick(self.now, 0);
        self.live();
    }

    fn kubelet_mut(&mut self, name: &str) -> &mut Kubelet {
        self.kubelets.get_mut(name).unwrap()
    }

    fn nominate(&mut self, at: usize, node: &str) {
        let Some(uid) = Self::pick(self.pending.keys().cloned(), at) else { return };
        let pod = self.pending.get_mut(&uid).unwrap();
        pod.scheduling.nominated_node = Some(node.to_owned());
        self.events.push(ApiEvent::Waits(pod.clone()));
    }

    /// The daemons of all nodes live.
    fn live(&mut self) {
        for node in self.extender.nodes.values_mut() {
            node.view.observe_life(self.now);
        }
    }

    /// A scheduler that binds itself calls again once its binding has ended; one whose call for a binding got
    /// no reply in time calls again at once.
    fn filter(&mut self, at: usize) {
        let is_binding = |uid: &String| self.on_its_way.iter().any(|sent| sent.uid == *uid);
        let binds = self.binder == Binder::Scheduler;
        let waiting = self.pending.keys().filter(|uid| !self.chosen.contains_key(*uid));
        let waiting = waiting.filter(|uid| !(binds && is_binding(uid)));
        let Some(pod) = Self::pick(waiting.cloned(), at).and_then(|uid| self.pending.get(&uid).cloned())
        else {
            return;
        };
        self.calls += 1;
        let call = FilterCall { pod: &pod, nodes: &NODES, number: self.calls, accepted: self.now };
        let answer = self.extender.filter(call, self.now);
        if let Some(node) = Self::pick(answer.passed.iter(), at) {
            self.chosen.insert(pod.uid.clone(), NODES[*node].to_owned());
        }
    }

    /// A late call is one of any pod that was chosen; else the pod is bound, and the scheduler does not know
    /// that yet. It waits a second before it tries again, so the extender does.
    fn filter_in_vain(&mut self, at: usize, is_late: bool) {
        let chosen = self.pending.values().filter(|pod| is_late && self.chosen.contains_key(&pod.uid));
        let bound = self.bound.values();
        let bound = bound.filter(|pod| is_late || self.extender.pods.contains_key(&pod.uid));
        let Some(pod) = Self::pick(bound.chain(chosen).cloned(), at) else { return };
        let number = if is_late { 0 } else { self.calls + 1 };
        self.calls = self.calls.max(number);
        let pod = PodObject { node: None, ..pod };
        let call = FilterCall { pod: &pod, nodes: &NODES, number, accepted: self.now };
        self.extender.filter(call, self.now);
    }

    /// Where the extender binds, bindings to one node come one after another.
    fn bind(&mut self, at: usize) {
        let is_busy = |node: &String| self.on_its_way.iter().any(|sent| sent.node == *node);
        let is_extender = self.binder == Binder::Extender;
        let ready = self.chosen.iter().filter(|(_, node)| !(is_extender && is_busy(node)));
        let ready = ready.map(|(uid, node)| Sent { uid: uid.clone(), node: node.clone() });
        let Some(sent) = Self::pick(ready.collect::<Vec<_>>().into_iter(), at) else { return };
        self.chosen.remove(&sent.uid);
        if is_extender {
            let binding = PodBinding { uid: &sent.uid, node: &sent.node };
            let begun = match self.extender.begin_bind(binding, self.now) {
                Err(BindRefusal::UnknownPod) => {
                    let Some(pod) = self.pending.get(&sent.uid) else { return };
                    self.extender.observe_request(&sent.uid, &pod.request, self.now);
                    self.extender.begin_bind(binding, self.now)
                }
                begun => begun,
            };
            if begun.is_err() {
                return;
            }
        }
        self.on_its_way.push_back(sent);
    }

    /// The API server takes a binding; returns whether it accepts it.
    fn post(&mut self, sent: &Sent) -> bool {
        let Some(pod) = self.pending.remove(&sent.uid) else { return false };
        let pod = on(&sent.node, &pod);
        self.bound.insert(pod.uid.clone(), pod.clone());
        self.events.push(ApiEvent::Bound(pod));
        true
    }

    fn land(&mut self, at: usize, is_lost: bool) {
        let Some(at) = Self::pick(0..self.on_its_way.len(), at) else { return };
        let Some(sent) = self.on_its_way.remove(at) else { return };
        let is_bound = self.post(&sent);
        if self.binder == Binder::Scheduler {
            return;
        }
        let end = match (is_lost, is_bound) {
            (true, _) => BindEnd::Unknown,
            (false, true) => BindEnd::Bound,
            (false, false) => BindEnd::Refused,
        };
        self.extender.end_bind(PodBinding { uid: &sent.uid, node: &sent.node }, end);
    }

    fn lose(&mut self, at: usize) {
        let Some(at) = Self::pick(0..self.on_its_way.len(), at) else { return };
        let Some(sent) = self.on_its_way.remove(at) else { return };
        if self.binder == Binder::Extender {
            self.extender.end_bind(PodBinding { uid: &sent.uid, node: &sent.node }, BindEnd::Unknown);
            self.without_reply.push(sent);
        } else {
            // The scheduler tries again what it has chosen.
            self.chosen.insert(sent.uid, sent.node);
        }
    }

    fn settle(&mut self) {
        // After two minutes nothing lands any more. The scheduler binds what it has chosen within minutes.
        if !self.without_reply.is_empty() || self.binder == Binder::Scheduler {
            return;
        }
        self.watch_all();
        self.now += 120_000;
        self.live();
        for claim in self.extender.unsettled(self.now) {
            let is_there =
                self.bound.get(&claim.uid).is_some_and(|pod| pod.node.as_ref() == Some(&claim.node));
            if !is_there {
                self.extender.end_bind(PodBinding { uid: &claim.uid, node: &claim.node }, BindEnd::NotThere);
            }
        }
    }

    fn kubelet_sees(&mut self, name: &'static str) {
        let kubelet = self.kubelets.get_mut(name).unwrap();
        let Some(event) = self.events.get(kubelet.seen) else { return };
        kubelet.seen += 1;
        match event {
            ApiEvent::Gone(pod) if pod.node.as_deref() == Some(name) => kubelet.free(pod),
            ApiEvent::Bound(pod) if pod.node.as_deref() == Some(name) && !kubelet.admit(pod) => {
                self.refused.push(pod.uid.clone());
                if let Some(pod) = self.bound.remove(&pod.uid) {
                    self.events.push(ApiEvent::Gone(pod));
                }
            }
            _ => {}
        }
    }

    fn state_arrives(&mut self, name: &'static str, back: usize) {
        let states = &self.kubelets[name].states;
        let state = states[states.len().saturating_sub(1 + back)].clone();
        self.extender.observe_state(object(name, state), self.now);
    }

    fn damaged_state(&mut self, name: &'static str) {
        let mut state = self.kubelet_mut(name).next_state();
        state.memory[0].free = -1;
        self.extender.observe_state(object(name, state), self.now);
    }

    fn pod_event(&mut self) {
        let Some(event) = self.events.get(self.watched) else { return };
        self.watched += 1;
        match event.clone() {
            ApiEvent::Waits(pod) | ApiEvent::Bound(pod) => self.extender.observe_pod(pod, self.now),
            ApiEvent::Gone(pod) => {
                let ended = PodObject { phase: PodPhase::Ended, ..pod.clone() };
                self.extender.observe_pod(ended, self.now);
                self.extender.observe_pod_gone(&pod.uid, self.now);
            }
        }
    }

    /// No watch that works is minutes late.
    fn watch_all(&mut self) {
        while self.watched < self.events.len() {
            self.pod_event();
        }
    }

    fn delete(&mut self, at: usize) {
        let Some(uid) = Self::pick(self.bound.keys().cloned(), at) else { return };
        let Some(pod) = self.bound.remove(&uid) else { return };
        self.events.push(ApiEvent::Gone(pod));
    }

    fn end(&mut self, at: usize) {
        let runs = |kubelet: &Kubelet, uid: &String| kubelet.admitted.contains(uid);
        let running = self.bound.values().filter(|pod| {
            let kubelet = pod.node.as_deref().and_then(|node| self.kubelets.get(node));
            kubelet.is_some_and(|kubelet| runs(kubelet, &pod.uid))
        });
        let Some(pod) = Self::pick(running.cloned().collect::<Vec<_>>().into_iter(), at) else { return };
        let kubelet = self.kubelets.get_mut(pod.node.as_deref().unwrap()).unwrap();
        kubelet.free(&pod);
        self.bound.remove(&pod.uid);
        self.ended.push(pod);
    }

    fn show_end(&mut self, at: usize) {
        if let Some(at) = Self::pick(0..self.ended.len(), at) {
            self.events.push(ApiEvent::Gone(self.ended.remove(at)));
        }
    }

    fn restart_extender(&mut self) {
        if !self.on_its_way.is_empty() || !self.without_reply.is_empty() {
            return;
        }
        // Without a binder, pods that were chosen are bound before it is ready again.
        if self.binder == Binder::Scheduler {
            for (uid, node) in std::mem::take(&mut self.chosen) {
                self.post(&Sent { uid, node });
            }
        }
        let settings = ExtenderSettings { binder: self.binder, ..ExtenderSettings::default() };
        self.extender = Extender::new(settings);
        for name in NODES {
            self.extender.observe_node(node(name), self.now);
            self.state_arrives(name, 0);
        }
        self.list_pods();
    }

    fn list_pods(&mut self) {
        self.extender.begin_pod_list(self.now);
        for pod in self.pending.values().chain(self.bound.values()).chain(&self.ended) {
            self.extender.observe_pod(pod.clone(), self.now);
        }
        self.extender.end_pod_list(self.now);
        self.watched = self.events.len();
    }

    /// A kubelet that starts again has admitted what was bound before, and has another configuration number.
    fn restart_kubelet(&mut self, name: &'static str) {
        for _ in self.kubelets[name].seen..self.events.len() {
            self.kubelet_sees(name);
        }
        let kubelet = self.kubelet_mut(name);
        kubelet.rejected.clear();
        kubelet.publish();
    }

    /// Everything that is on its way arrives.
    fn quiesce(&mut self) {
        while !self.on_its_way.is_empty() {
            self.land(0, false);
        }
        self.without_reply.clear();
        self.chosen.clear();
        for pod in self.pending.values_mut() {
            pod.scheduling.nominated_node = None;
            self.events.push(ApiEvent::Waits(pod.clone()));
        }
        while !self.ended.is_empty() {
            self.show_end(0);
        }
        for _ in 0..2 {
            for name in NODES {
                for _ in self.kubelets[name].seen..self.events.len() {
                    self.kubelet_sees(name);
                }
            }
        }
        self.watch_all();
        for name in NODES {
            self.kubelet_mut(name).publish();
            self.state_arrives(name, 0);
        }
        self.settle();
        self.now += 1_000_000;
        self.live();
        self.extender.tick(self.now, 0);
        self.live();
    }

    /// CPUs by holder, as the kubelet of a node has them.
    fn exclusive(held: &Allocations) -> Vec<(String, String, String)> {
        let all = held.iter();
        all.map(|(holder, grant)| {
            (holder.pod().uid.clone(), holder.name().to_owned(), grant.exclusive.to_string())
        })
        .collect()
    }

    fn check_quiet(&self) -> Result<(), TestCaseError> {
        for name in NODES {
            let view = &self.extender.nodes[name].view;
            prop_assert_eq!(Self::exclusive(view.allocations()), Self::exclusive(&self.kubelets[name].held));
            prop_assert_eq!(view.pending(), 0, "{}", name);
        }
        prop_assert_eq!((self.extender.reservations(), self.extender.claims()), (0, 0));
        prop_assert!(self.extender.nominations.is_empty());
        Ok(())
    }

    /// Each pod that waits passes on the nodes where its kubelet admits it, and on no other: on all of them
    /// if the extender binds, on one of them otherwise.
    fn check_room(&mut self) -> Result<(), TestCaseError> {
        for pod in self.pending.values() {
            self.calls += 1;
            let call = FilterCall { pod, nodes: &NODES, number: self.calls, accepted: self.now };
            let passed = self.extender.filter(call, self.now).passed;
            self.extender.observe_pod_gone(&pod.uid, self.now);
            let admits = NODES.iter().enumerate().filter(|(_, name)| self.kubelets[**name].admits(pod));
            let admits: Vec<usize> = admits.map(|(at, _)| at).collect();
            if self.binder == Binder::Extender || pod.request.qos != QosClass::Guaranteed {
                prop_assert_eq!(passed, admits, "{:?}", pod.uid);
            } else {
                prop_assert_eq!(passed.len(), admits.len().min(1));
                prop_assert!(passed.iter().all(|at| admits.contains(at)), "{:?}", pod.uid);
            }
        }
        Ok(())
    }
}

fn run(binder: Binder, steps: Vec<Step>) -> Result<World, TestCaseError> {
    let mut world = World::new(binder);
    for step in steps {
        let was = world.refused.len();
        world.step(step);
        if world.foreign == 0 {
            prop_assert_eq!(world.refused.len(), was, "{:?} refused {:?}", step, world.refused.last());
        }
    }
    world.quiesce();
    world.check_quiet()?;
    world.check_room()?;
    Ok(world)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn no_pod_is_refused_and_nothing_is_left_where_the_extender_binds(
        steps in prop::collection::vec(step(false), 1..160),
    ) {
        let mut world = run(Binder::Extender, steps)?;
        prop_assert_eq!(world.refused.len(), 0);
        prop_assert_eq!(world.extender.take_tally().mispredicted, Vec::<String>::new());
    }

    #[test]
    fn no_pod_is_refused_and_nothing_is_left_where_the_scheduler_binds(
        steps in prop::collection::vec(step(false), 1..160),
    ) {
        prop_assert_eq!(run(Binder::Scheduler, steps)?.refused.len(), 0);
    }

    #[test]
    fn nothing_is_left_where_foreign_pods_come(
        binds in any::<bool>(),
        steps in prop::collection::vec(step(true), 1..160),
    ) {
        let binder = if binds { Binder::Extender } else { Binder::Scheduler };
        run(binder, steps)?;
    }
}

/// The control: without the claims of its bindings, the same extender lets kubelets refuse pods.
#[test]
fn kubelets_refuse_pods_of_an_extender_that_forgets_its_claims() {
    let mut refused = 0;
    let mut world = World::new(Binder::Extender);
    for _ in 0..40 {
        world.step(Step::Create);
        world.step(Step::Filter(0));
        world.step(Step::Bind(0));
        world.step(Step::Land(0, false));
        for name in NODES {
            let claimed: Vec<String> = world.bound.keys().cloned().collect();
            for uid in claimed {
                world.extender.nodes.get_mut(name).unwrap().view.forget(&uid);
            }
        }
        for name in 0..3 {
            (0..50).for_each(|_| world.step(Step::KubeletSees(name)));
        }
        refused = world.refused.len();
        if refused > 0 {
            break;
        }
    }
    assert!(refused > 0);
}
