//! Tables with columns that come and go with the width of the screen.
//!
//! The first column takes what the others leave. The others are there in the order of their importance, as
//! long as the first one keeps its least width; they are shown in the order of the table.

use crate::text;

/// A column of a table of `T`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column<T> {
    /// Its content.
    pub(super) of: T,
    /// Its title.
    pub(super) title: &'static str,
    /// Its width, without the blank before it.
    pub(super) width: usize,
    /// The lower, the longer it stays.
    pub(super) rank: u8,
}

/// A table: the least width of the first column, its title, and the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Columns<T: 'static> {
    pub(super) first: &'static str,
    pub(super) least: usize,
    pub(super) others: &'static [Column<T>],
}

impl<T: Copy + PartialEq> Columns<T> {
    /// Columns that fit, and the width of the first one.
    pub(super) fn fitting(&self, width: usize) -> (usize, impl Iterator<Item = &'static Column<T>>) {
        let needed = |rank: u8| -> usize {
            self.others.iter().filter(|one| one.rank <= rank).map(|one| one.width + 1).sum()
        };
        let least = self.least;
        let ranks = (0..=u8::MAX).take_while(|rank| needed(*rank) + least <= width);
        let most = ranks.take(self.others.len() + 1).last();
        let shown = self.others.iter().filter(move |one| most.is_some_and(|most| one.rank <= most));
        (width.saturating_sub(most.map_or(0, needed)), shown)
    }
}

/// The titles; the column that is sorted by is marked.
pub(super) fn heading<T: Copy + PartialEq>(columns: &Columns<T>, width: usize, sorted: Option<T>) -> String {
    let (first, others) = columns.fitting(width);
    let mut out = left(&text::fit(columns.first, first), first);
    for column in others {
        let mark = if sorted == Some(column.of) { ">" } else { "" };
        out.push(' ');
        out.push_str(&right(&format!("{mark}{}", column.title), column.width));
    }
    out
}

/// A row; `cell` of `None` is the first column.
pub(super) fn row<T: Copy + PartialEq>(
    columns: &Columns<T>,
    width: usize,
    cell: impl Fn(Option<T>) -> String,
) -> String {
    let (first, others) = columns.fitting(width);
    let mut out = left(&text::fit(&cell(None), first), first);
    for column in others {
        out.push(' ');
        out.push_str(&right(&text::fit(&cell(Some(column.of)), column.width), column.width));
    }
    out
}

/// Filled up with blanks behind it, by columns of the terminal.
pub(super) fn left(text: &str, width: usize) -> String {
    format!("{text}{}", blanks(text, width))
}

fn right(text: &str, width: usize) -> String {
    format!("{}{text}", blanks(text, width))
}

fn blanks(text: &str, width: usize) -> String {
    " ".repeat(width.saturating_sub(text::width(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: Columns<char> = Columns {
        first: "name",
        least: 6,
        others: &[
            Column { of: 'a', title: "aa", width: 4, rank: 1 },
            Column { of: 'b', title: "bb", width: 5, rank: 0 },
        ],
    };

    #[test]
    fn columns_go_by_rank_and_stay_in_their_order() {
        for (width, shown) in
            [(20, "name         aa    bb"), (17, "name      aa    bb"), (16, "name          bb")]
        {
            let shown_width = shown.len().min(width);
            assert_eq!(heading(&TABLE, width, None).len(), width);
            assert_eq!(
                heading(&TABLE, width, None).replace(' ', ""),
                shown.replace(' ', ""),
                "{shown_width}"
            );
        }
        assert_eq!(heading(&TABLE, 11, None), "name       ");
        assert_eq!(heading(&TABLE, 3, None), "…me");
        assert_eq!(heading(&TABLE, 17, Some('a')), "name    >aa    bb");
    }

    #[test]
    fn cells_are_cut_to_their_column() {
        let shown = row(&TABLE, 17, |of| of.map_or("/a/very/long/path", |_| "日本語").to_owned());
        assert_eq!(text::width(&shown), 17, "{shown}");
    }
}
