package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

const module = "xwarp/"

// change is a possible change of the code: in a file, the bytes [from, to), which are before, are replaced by after.
type change struct {
	pkg, file string // import path; path of the file relative to the repository
	function  string // the enclosing function; empty outside of functions
	line      int
	column    int // position of the change in context, from 1
	from, to  int
	before    string
	after     string
	context   string // the original line, without indentation
}

// key returns a text that identifies the change. It has no line number, so that it stays the same if other lines are
// added or removed.
func (c *change) key() string {
	return fmt.Sprintf("%s: %s: %s: %d: %s -> %s", c.file, c.function, c.context, c.column,
		c.before,
		c.after)
}

// shuffled sorts changes in place by a hash of seed and key and returns them. So other edits of the code do not alter
// their relative order.
func shuffled(changes []*change, seed uint64) []*change {
	hash := make(map[*change][sha256.Size]byte, len(changes))
	for _, c := range changes {
		hash[c] = sha256.Sum256(fmt.Append(nil, seed, c.key()))
	}
	slices.SortStableFunc(changes, func(a, b *change) int {
		x, y := hash[a], hash[b]
		return bytes.Compare(x[:], y[:])
	})
	return changes
}

// enumerate returns every possible change of the packages that match patterns, in the module at root.
func enumerate(root string, patterns []string) (changes []*change, err error) {
	if root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	cfg := packages.Config{Dir: root, Mode: packages.NeedName | packages.NeedFiles |
		packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo}
	list, err := packages.Load(&cfg, patterns...)
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		if len(p.Errors) > 0 {
			return nil, p.Errors[0]
		}
		f := finder{Package: p}
		if err := f.find(root); err != nil {
			return nil, err
		}
		changes = append(changes, f.list...)
	}
	return changes, nil
}

// finder collects the possible changes of one package in list.
type finder struct {
	*packages.Package
	file     string
	source   []byte
	function string
	list     []*change
}

func (f *finder) find(root string) (err error) {
	for i, path := range f.GoFiles {
		if f.source, err = os.ReadFile(path); err != nil {
			return err
		}
		if f.file, err = filepath.Rel(root, path); err != nil {
			return err
		}
		file := f.Syntax[i]
		// No test can detect another limit, because tests use the limits' names and not their values.
		if ast.IsGenerated(file) || filepath.Base(path) == "limits.go" {
			continue
		}
		for _, d := range file.Decls {
			f.function = ""
			if fn, ok := d.(*ast.FuncDecl); ok {
				f.function = fn.Name.Name
			}
			ast.Inspect(d, f.node)
		}
	}
	return nil
}

// add adds a change that replaces the text between two positions by after.
func (f *finder) add(from, to token.Pos, after string) {
	at := f.Fset.Position(from)
	a, b := at.Offset, f.Fset.Position(to).Offset
	begin := bytes.LastIndexByte(f.source[:a], '\n') + 1
	line, _, _ := strings.Cut(string(f.source[begin:]), "\n")
	context := strings.TrimSpace(line)
	f.list = append(f.list, &change{pkg: f.PkgPath, file: f.file, function: f.function,
		line: at.Line, column: a - begin - strings.Index(line, context) + 1, from: a, to: b,
		before: string(f.source[a:b]), after: after, context: context})
}

// swapped maps operators to their replacements.
var swapped = map[token.Token][]token.Token{
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LSS: {token.LEQ, token.GEQ}, token.GEQ: {token.GTR, token.LSS},
	token.LEQ: {token.LSS, token.GTR}, token.GTR: {token.GEQ, token.LEQ},
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL},
	token.SHL: {token.SHR}, token.SHR: {token.SHL}, token.AND: {token.OR}, token.OR: {token.AND},
	token.ADD_ASSIGN: {token.SUB_ASSIGN}, token.SUB_ASSIGN: {token.ADD_ASSIGN},
	token.OR_ASSIGN: {token.AND_ASSIGN}, token.AND_ASSIGN: {token.OR_ASSIGN},
	token.INC: {token.DEC}, token.DEC: {token.INC},
}

// node adds the changes of one syntax node. It returns false if there is nothing to change inside the node.
func (f *finder) node(n ast.Node) bool {
	operator := func(at token.Pos, op token.Token) {
		for _, o := range swapped[op] {
			f.add(at, at+token.Pos(len(op.String())), o.String())
		}
	}
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok != token.IMPORT
	case *ast.Field: // has no other literals than tags and lengths of arrays
		return false
	case *ast.BinaryExpr:
		if f.basic(n.X)&types.IsString == 0 { // not the concatenation of strings
			operator(n.OpPos, n.Op)
		}
	case *ast.AssignStmt:
		operator(n.TokPos, n.Tok)
	case *ast.IncDecStmt:
		operator(n.TokPos, n.Tok)
	case *ast.IfStmt:
		f.negate(n.Cond)
	case *ast.BasicLit:
		f.literal(n)
	case *ast.ReturnStmt:
		if last := len(n.Results) - 1; last > 0 && f.isError(n.Results[last]) {
			f.returned(n.Results[last]) // callers ignore the other results if there is an error
			return false
		}
		for _, r := range n.Results {
			f.returned(r)
		}
	}
	return true
}

// basic returns the properties of an expression's type if that is a basic type, otherwise 0.
func (f *finder) basic(e ast.Expr) types.BasicInfo {
	if t := f.TypesInfo.TypeOf(e); t != nil {
		if b, ok := t.Underlying().(*types.Basic); ok {
			return b.Info()
		}
	}
	return 0
}

// negate adds the negation of a condition. It adds none for == and !=, because the change of the operator is the same.
func (f *finder) negate(e ast.Expr) {
	if b, ok := e.(*ast.BinaryExpr); ok && (b.Op == token.EQL || b.Op == token.NEQ) {
		return
	}
	f.add(e.Pos(), e.End(), "!("+f.text(e)+")")
}

func (f *finder) text(e ast.Expr) string {
	return string(f.source[f.Fset.Position(e.Pos()).Offset:f.Fset.Position(e.End()).Offset])
}

// literal adds a change that increments an integer literal.
func (f *finder) literal(n *ast.BasicLit) {
	if n.Kind != token.INT {
		return
	}
	v := constant.MakeFromLiteral(n.Value, n.Kind, 0)
	f.add(n.Pos(), n.End(), constant.BinaryOp(v, token.ADD, constant.MakeInt64(1)).String())
}

// isError reports whether e is an error that may be non-nil.
func (f *finder) isError(e ast.Expr) bool {
	t := f.TypesInfo.TypeOf(e)
	return t != nil && t.String() == "error" && f.text(e) != "nil"
}

// returned adds a change of a returned value: the negation of a condition, a number plus one, or nil instead of an
// error.
func (f *finder) returned(e ast.Expr) {
	if _, ok := e.(*ast.BasicLit); ok { // literal adds its change
		return
	}
	switch b := f.basic(e); {
	case f.text(e) == "true":
		f.add(e.Pos(), e.End(), "false")
	case f.text(e) == "false":
		f.add(e.Pos(), e.End(), "true")
	case b&types.IsBoolean != 0:
		f.negate(e)
	case b&types.IsInteger != 0:
		f.add(e.Pos(), e.End(), "("+f.text(e)+") + 1")
	case f.isError(e):
		f.add(e.Pos(), e.End(), "nil")
	}
}
