//! Which actions the simulator understands, as far as an agent's view can tell.

use crate::environment::{Actions, View, fits};

/// How the simulator begins its question about an action that can mean several.
const QUESTION: &str = "Ambiguous request:";

/// Other ways to say a template, by the simulator's grammar.
const SYNONYMS: [(&str, &[&str]); 16] = [
    ("activate OBJ", &["turn on OBJ"]),
    ("deactivate OBJ", &["turn off OBJ"]),
    ("dunk OBJ in OBJ", &["dunk OBJ into OBJ"]),
    ("eat OBJ", &["consume OBJ"]),
    ("focus on OBJ", &["focus OBJ"]),
    ("go OBJ", &["go to OBJ", "go through OBJ", "go into OBJ", "walk OBJ", "move through OBJ"]),
    ("look around", &["look"]),
    ("look at OBJ", &["examine OBJ"]),
    ("look in OBJ", &["look on OBJ"]),
    ("mix OBJ", &["stir OBJ"]),
    ("move OBJ to OBJ", &["put OBJ in OBJ", "put OBJ into OBJ", "put OBJ on OBJ"]),
    ("pick up OBJ", &["get OBJ", "take OBJ"]),
    ("pour OBJ in OBJ", &["pour OBJ into OBJ"]),
    ("put down OBJ", &["drop OBJ"]),
    ("teleport OBJ", &["teleport to OBJ", "teleport into OBJ"]),
    ("use OBJ on OBJ", &["use OBJ with OBJ"]),
];

/// Whether `action` fits one of the view's templates, or answers the simulator's question with one of its numbers.
/// Case and articles do not matter. Objects are not checked: the view lists what is in sight, and what the agent
/// carries can be named as well.
pub(super) fn admits(view: &View, action: &str) -> bool {
    if view.observation.starts_with(QUESTION) {
        return answers(&view.observation, action.trim());
    }
    let Actions::Templates { templates, .. } = &view.actions else { return false };
    let action = plain(action);
    templates.iter().any(|template| {
        let said = SYNONYMS.iter().filter(|(listed, _)| listed == template);
        let synonyms = said.flat_map(|(_, others)| others.iter().copied());
        [template.as_str()].into_iter().chain(synonyms).any(|template| fits(template, &action))
    })
}

/// Whether `number` stands before one of the question's choices; nothing at all cancels the action.
fn answers(question: &str, number: &str) -> bool {
    let choices = question.lines().filter_map(|line| line.split_once(":\t"));
    number.is_empty() || choices.into_iter().any(|(choice, _)| choice == number)
}

/// Lower case, single spaces, no articles.
fn plain(action: &str) -> String {
    let action = action.to_lowercase();
    let words = action.split_whitespace().filter(|word| !matches!(*word, "a" | "an" | "the"));
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Status;

    fn view(observation: &str) -> View {
        let templates = ["go OBJ", "look around", "move OBJ to OBJ", "pick up OBJ", "teleport OBJ"];
        View {
            task: String::new(),
            observation: observation.to_owned(),
            actions: Actions::Templates {
                templates: templates.map(str::to_owned).to_vec(),
                objects: vec!["door to kitchen".to_owned()],
            },
            turn: 1,
            score: 0.0,
            status: Status::Running,
        }
    }

    #[test]
    fn templates_synonyms_case_and_articles_are_understood() {
        let view = view("This room is called the hallway.");
        for good in [
            "go door to kitchen",
            "go to kitchen",
            "Pick up the orange",
            "take orange",
            "put orange in bowl",
            "teleport to kitchen",
            "look",
        ] {
            assert!(admits(&view, good), "{good}");
        }
        for bad in ["", "pick up", "pick up the", "dance", "connect wire to battery", "0"] {
            assert!(!admits(&view, bad), "{bad}");
        }
    }

    #[test]
    fn a_question_is_answered_by_its_numbers() {
        let view =
            view("Ambiguous request: Please enter the number:\n0:\topen door\n1:\topen box\n");
        assert!(admits(&view, "1") && admits(&view, " 0 "));
        assert!(!admits(&view, "2") && !admits(&view, "look around"));
    }
}
