//! The checkers find mistakes: each one that is made on purpose is seen within two hundred seeds.

use forebay_broker_sim::{Mutation, Options, run};

#[test]
fn each_mistake_is_found_within_two_hundred_seeds() {
    let mut missed = Vec::new();
    for mutation in Mutation::ALL {
        let violation =
            |seed| run(&Options { seed, mutation: Some(mutation), ..Options::default() }).unwrap().violation;
        match (0..200).find_map(|seed| Some((seed, violation(seed)?))) {
            Some((seed, violation)) => println!("{mutation:?}: seed {seed}, {violation}"),
            None => missed.push(mutation),
        }
    }
    assert_eq!(missed, []);
}
