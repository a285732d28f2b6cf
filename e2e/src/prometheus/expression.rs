//! What an alert's expression compares: in a healthy cluster the comparison is empty, but both of its sides must be there,
//! or the alert could never fire.

/// Words between whole expressions, with what may follow them.
const SET_OPERATORS: &[&str] = &["and", "or", "unless"];
const COMPARISONS: &[&str] = &["==", "!=", ">=", "<=", ">", "<"];

/// The parts of an expression on either side of its outermost set operators and comparisons, numbers left out. What must not be absent
/// is looked for as if it must be there.
pub fn operands(expression: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let words = words(expression);
    let mut index = 0;
    while index < words.len() {
        let word = words[index].as_str();
        if SET_OPERATORS.contains(&word) || COMPARISONS.contains(&word) {
            parts.push(String::new());
            // `and on (a, b)`: how to match belongs to the operator.
            if matches!(words.get(index + 1).map(String::as_str), Some("on" | "ignoring")) {
                index += 2;
            }
        } else if let Some(part) = parts.last_mut() {
            part.push_str(word);
            part.push(' ');
        }
        index += 1;
    }
    let parts = parts.into_iter().map(|part| part.trim().replace("absent(", "("));
    parts.filter(|part| !part.is_empty() && part.parse::<f64>().is_err()).collect()
}

/// Words apart from spaces outside brackets and strings: what is in brackets stays one word with what it is next to.
fn words(expression: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let (mut depth, mut quoted) = (0_usize, false);
    for character in expression.chars() {
        match character {
            '"' => quoted = !quoted,
            '(' | '[' | '{' if !quoted => depth += 1,
            ')' | ']' | '}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        if character.is_whitespace() && depth == 0 && !quoted {
            words.push(std::mem::take(&mut word));
        } else {
            word.push(character);
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::operands;

    #[test]
    fn a_comparison_with_a_number_has_one_operand() {
        assert_eq!(operands("max by (a, b) (up{x=\"a > b\"}) > 300"), ["max by (a, b) (up{x=\"a > b\"})"]);
    }

    #[test]
    fn two_vectors_are_two_operands() {
        assert_eq!(
            operands("sum(up) < max_over_time(count(up == 1)[1h:1m])"),
            ["sum(up)", "max_over_time(count(up == 1)[1h:1m])"]
        );
    }

    #[test]
    fn set_operators_split_and_take_their_matching_with_them() {
        assert_eq!(
            operands("time() - max by (k) (t) > 1800 and on (namespace, k) max by (k) (o) > 0"),
            ["time() - max by (k) (t)", "max by (k) (o)"]
        );
    }

    #[test]
    fn what_must_not_be_absent_is_looked_for() {
        assert_eq!(
            operands("sum(up) < 1 or sum by (n) (absent(up{n=\"x\"}))"),
            ["sum(up)", "sum by (n) ((up{n=\"x\"}))"]
        );
    }

    #[test]
    fn arithmetic_stays_whole() {
        assert_eq!(operands("min(a) / on (b) min(c) < 0.1"), ["min(a) / on (b) min(c)"]);
    }
}
