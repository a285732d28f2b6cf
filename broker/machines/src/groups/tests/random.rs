//! Any mixture of clients that come, go, repeat themselves and fall silent: whatever happened, those who stay and
//! behave end up in one stable group, and no request is left without an answer.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Act {
    Join(usize),
    Sync(usize),
    Heartbeat(usize),
    Leave(usize),
    Forget(usize),
    Commit(usize),
    Pass(i64),
    Restart,
}

fn act() -> impl Strategy<Value = Act> {
    let who = 0..NAMES.len();
    prop_oneof![
        4 => who.clone().prop_map(Act::Join),
        4 => who.clone().prop_map(Act::Sync),
        2 => who.clone().prop_map(Act::Heartbeat),
        1 => who.clone().prop_map(Act::Leave),
        1 => who.clone().prop_map(Act::Forget),
        1 => who.prop_map(Act::Commit),
        2 => (1..20_000i64).prop_map(Act::Pass),
        1 => Just(Act::Restart),
    ]
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// A client and the request it waits for.
struct Actor {
    client: Client,
    waits: Option<RequestToken>,
}

fn actor(index: usize) -> Actor {
    let client = match index {
        0 => static_client(NAMES[index], "one"),
        1 => static_client(NAMES[index], "two"),
        2 => client(NAMES[index]),
        _ => Client { knows_ids: true, ..client(NAMES[index]) },
    };
    Actor { client, waits: None }
}

/// Looks at the answer, as a client would. True when the client has its assignment.
fn listen(scene: &mut Scene, actor: &mut Actor) -> bool {
    let Some(reply) = actor.waits.and_then(|token| scene.reply(token)) else { return false };
    actor.waits = None;
    match reply {
        Reply::Join(Ok(joined)) => {
            actor.client.id = joined.member_id.clone();
            actor.client.generation = joined.generation;
            let members = joined.members.iter().map(|member| (member.member_id.clone(), Bytes::from("x"))).collect();
            let caller = actor.client.caller();
            let request =
                Sync { group: "g".into(), caller, protocol_type: None, protocol_name: None, assignments: members };
            actor.waits = Some(scene.send(Command::Sync(request)));
            false
        }
        Reply::Join(Err(refusal)) => {
            match refusal.error {
                GroupError::MemberIdRequired => actor.client.id = refusal.member_id,
                GroupError::UnknownMember { .. } | GroupError::FencedInstance { .. } => actor.client.id = "".into(),
                _ => {}
            }
            false
        }
        Reply::Sync(Ok(_)) => true,
        Reply::Sync(Err(GroupError::UnknownMember { .. } | GroupError::FencedInstance { .. })) => {
            actor.client.id = "".into();
            false
        }
        _ => false,
    }
}

fn perform(scene: &mut Scene, actors: &mut [Actor], act: Act) {
    match act {
        Act::Join(index) => actors[index].waits = Some(scene.join(&actors[index].client)),
        Act::Sync(index) => {
            listen(scene, &mut actors[index]);
        }
        Act::Heartbeat(index) => {
            let _ = scene.heartbeat(&actors[index].client);
        }
        Act::Leave(index) => {
            let _ = scene.leave(actors[index].client.id.clone().as_str(), None);
        }
        Act::Forget(index) => actors[index] = actor(index),
        Act::Commit(index) => {
            let _ = scene.commit_as(actors[index].client.caller(), 1, "");
        }
        Act::Pass(duration_ms) => scene.pass(duration_ms),
        Act::Restart => {
            scene.restart();
            for actor in actors {
                actor.waits = None; // connections are gone
            }
        }
    }
}

/// From now on everybody behaves: heartbeats, joins when told to, syncs.
fn behave(scene: &mut Scene, actors: &mut [Actor]) -> bool {
    let mut settled = vec![false; actors.len()];
    for _ in 0..2_000 {
        for (actor, settled) in actors.iter_mut().zip(&mut settled) {
            if actor.waits.is_some() {
                *settled |= listen(scene, actor);
                continue;
            }
            match scene.heartbeat(&actor.client) {
                Ok(()) if *settled => {}
                result => {
                    if matches!(result, Err(GroupError::UnknownMember { .. } | GroupError::FencedInstance { .. })) {
                        let pending = actor.client.knows_ids && actor.client.generation < 0;
                        if !pending {
                            actor.client.id = "".into();
                        }
                        actor.client.generation = -1;
                    }
                    *settled = false;
                    actor.waits = Some(scene.join(&actor.client));
                }
            }
        }
        scene.pass(500);
        if settled.iter().all(|settled| *settled) && members_are(scene, actors) {
            return true;
        }
    }
    false
}

/// Nobody is missing, and who was abandoned is gone.
fn members_are(scene: &mut Scene, actors: &[Actor]) -> bool {
    let Reply::Describe(Ok(group)) = scene.ask(Command::Describe { group: "g".into() }) else { return false };
    let mut ids: Vec<_> = actors.iter().map(|actor| actor.client.id.clone()).collect();
    ids.sort();
    group.state == GroupState::Stable && group.members.into_iter().map(|member| member.member_id).eq(ids)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_group_never_sticks(acts in proptest::collection::vec(act(), 0..60)) {
        let mut scene = Scene::with(GroupConfig::default());
        let mut actors: Vec<_> = (0..NAMES.len()).map(actor).collect();
        for act in acts {
            perform(&mut scene, &mut actors, act);
        }
        prop_assert!(behave(&mut scene, &mut actors), "the group did not settle: {:?}", scene.machine);
    }
}
