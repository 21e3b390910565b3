//! Proves that a source with planted defects is the product's source while all defects are off.
//!
//! It reads both as Rust, takes each `on(..)` for `false`, and leaves out what `false` makes void: `x || false` is `x`,
//! `if false { .. }` is nothing, an arm with the guard `false` never matches, `.filter(|_| true)` keeps all. What is left
//! has to be equal. A change whose form is not known here is refused, although it may be right.

use syn::{
    BinOp, Block, Expr, ExprLit, Lit, Pat, Stmt, UnOp, parse_quote,
    visit_mut::{self, VisitMut},
};

/// Whether `copy` is `product` while all defects are off.
///
/// # Errors
/// One of them is no Rust source.
pub fn is_same(product: &str, copy: &str) -> syn::Result<bool> {
    let read = |text| {
        let mut file = syn::parse_file(text)?;
        Off.visit_file_mut(&mut file);
        syn::Result::Ok(file)
    };
    Ok(read(product)? == read(copy)?)
}

/// Takes all defects for off.
struct Off;

impl VisitMut for Off {
    fn visit_expr_mut(&mut self, e: &mut Expr) {
        visit_mut::visit_expr_mut(self, e);
        while let Some(simpler) = simpler(e) {
            *e = simpler;
        }
    }

    fn visit_block_mut(&mut self, block: &mut Block) {
        visit_mut::visit_block_mut(self, block);
        let all = std::mem::take(&mut block.stmts);
        block.stmts = all.into_iter().flat_map(shortened).collect();
    }
}

/// The statements that do the same.
fn shortened(statement: Stmt) -> Vec<Stmt> {
    match statement {
        Stmt::Expr(Expr::If(e), _) if e.else_branch.is_none() && value(&e.cond) == Some(false) => {
            Vec::new()
        }
        // Without names of its own, a block is its statements.
        Stmt::Expr(Expr::Block(b), _)
            if b.label.is_none() && !b.block.stmts.iter().any(|s| matches!(s, Stmt::Local(_))) =>
        {
            b.block.stmts
        }
        other => vec![other],
    }
}

fn value(e: &Expr) -> Option<bool> {
    match e {
        Expr::Lit(ExprLit {
            lit: Lit::Bool(lit),
            ..
        }) => Some(lit.value),
        _ => None,
    }
}

/// Whether evaluating it does nothing.
fn is_pure(e: &Expr) -> bool {
    match e {
        Expr::Path(_) | Expr::Lit(_) => true,
        Expr::Field(e) => is_pure(&e.base),
        Expr::Unary(e) => is_pure(&e.expr),
        _ => false,
    }
}

/// What the block of an `if` or `else` gives.
fn of_block(block: &Block) -> Expr {
    match &block.stmts[..] {
        [Stmt::Expr(only, None)] => only.clone(),
        _ => parse_quote!(#block),
    }
}

/// Whether a closure gives that for everything.
fn always(e: &Expr, wanted: bool) -> bool {
    let Expr::Closure(closure) = e else {
        return false;
    };
    let given = match &*closure.body {
        Expr::Block(b) => of_block(&b.block),
        body => body.clone(),
    };
    value(&given) == Some(wanted)
}

/// Whether it is an Option or an iterator without anything in it.
fn is_empty(e: &Expr) -> bool {
    let Expr::MethodCall(call) = e else {
        return false;
    };
    match call.method.to_string().as_str() {
        "then" => value(&call.receiver) == Some(false),
        "filter" if call.args.first().is_some_and(|f| always(f, false)) => true,
        "into_iter" | "flatten" | "filter" | "map" => is_empty(&call.receiver),
        _ => false,
    }
}

/// The same expression in fewer words. `None` if there is none.
fn simpler(e: &Expr) -> Option<Expr> {
    let literal = |value: bool| -> Expr { parse_quote!(#value) };
    match e {
        Expr::Paren(e) => Some((*e.expr).clone()),
        Expr::Call(call) => {
            let Expr::Path(path) = &*call.func else {
                return None;
            };
            let names = path.path.segments.iter().map(|s| s.ident.to_string());
            let names: Vec<String> = names.collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let asks = matches!(names[..], ["crate", "mutants", "on" | "any"]);
            asks.then(|| literal(false))
        }
        Expr::Unary(e) if matches!(e.op, UnOp::Not(_)) => value(&e.expr).map(|v| literal(!v)),
        Expr::Binary(e) => {
            // What leaves the other side as it is.
            let idle = match e.op {
                BinOp::Or(_) => false,
                BinOp::And(_) => true,
                _ => return None,
            };
            match (value(&e.left), value(&e.right)) {
                (Some(left), _) if left == idle => Some((*e.right).clone()),
                (_, Some(right)) if right == idle => Some((*e.left).clone()),
                (Some(left), _) => Some(literal(left)),
                (_, Some(right)) if is_pure(&e.left) => Some(literal(right)),
                _ => None,
            }
        }
        Expr::If(e) => match (value(&e.cond)?, &e.else_branch) {
            (true, _) => Some(of_block(&e.then_branch)),
            (false, Some((_, other))) => Some(match &**other {
                Expr::Block(b) => of_block(&b.block),
                other => other.clone(),
            }),
            (false, None) => None,
        },
        Expr::Match(e) => {
            let mut e = e.clone();
            let count = e.arms.len();
            let guard = |arm: &syn::Arm| arm.guard.as_ref().and_then(|(_, guard)| value(guard));
            let guards = e.arms.iter().filter(|arm| guard(arm).is_some()).count();
            e.arms.retain(|arm| guard(arm) != Some(false));
            for arm in e.arms.iter_mut().filter(|arm| guard(arm) == Some(true)) {
                arm.guard = None;
            }
            if let [only] = &e.arms[..]
                && let (Pat::Ident(name), Expr::Path(given)) = (&only.pat, &*only.body)
                && only.guard.is_none()
                && name.subpat.is_none()
                && given.path.is_ident(&name.ident)
            {
                return Some((*e.expr).clone());
            }
            (guards > 0 || e.arms.len() < count).then_some(Expr::Match(e))
        }
        Expr::MethodCall(call) => {
            let argument = call.args.first()?;
            let idle = match call.method.to_string().as_str() {
                "filter" => always(argument, true),
                "chain" | "or" => is_empty(argument),
                _ => false,
            };
            idle.then(|| (*call.receiver).clone())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proven(product: &str, copy: &str) -> bool {
        let on = "crate::mutants::on(crate::mutants::Mutant::A)";
        let source = |text: &str| format!("fn f() {{ {} }}", text.replace("ON", on));
        is_same(&source(product), &source(copy)).expect("Rust")
    }

    #[test]
    fn what_changes_the_product_is_refused() {
        for (product, copy) in [
            ("if a {}", "if a && ON {}"),
            ("if a {}", "if a || !ON {}"),
            ("if a && b {}", "if a || b || ON {}"),
            ("if a && (b || c) {}", "if a && b || c || ON {}"),
            ("go();", "if ON { go(); }"),
            ("go();", "let x = 1; if ON { return x; } go();"),
            (
                "match x { A => 1, B => 2 }",
                "match x { A if ON => 1, B => 2 }",
            ),
            ("a.next()", "a.filter(|_| ON).next()"),
            ("a.map(b)", "a.map(b).chain(c)"),
            ("false", "go() && ON"),
        ] {
            assert!(!proven(product, copy), "{copy}");
        }
    }
}
