#include "textflag.h"

// BYTES fills a register with a byte.
#define BYTES(value, y, x) \
	MOVQ         value, AX \
	VMOVQ        AX, x     \
	VPBROADCASTQ x, y

// SPACES sets the bytes of ok to ones where those of x are white space: 0x20, or,
// less 9, at most 4. t is spoiled.
#define SPACES(x, ok, t) \
	VPCMPEQB x, Y0, ok \
	VPSUBB   Y1, x, t  \
	VPMINUB  Y2, t, Y7 \
	VPCMPEQB Y7, t, t  \
	VPOR     t, ok, ok

// ENDRUNS leaves in r the bits that end a run of twice as many set bits.
#define ENDRUNS(shift, r, t) \
	MOVQ r, t      \
	SHLQ shift, t  \
	ANDQ t, r

// func skim(dst, src *byte, n, step int, t *tokens) (done int, why halt)
//
// R8 after, R9 run, R10 need, R11 max, R12 inner, CX chunks left.
TEXT ·skim(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	MOVQ t+32(FP), BX
	BYTES($0x2020202020202020, Y0, X0)
	BYTES($0x0909090909090909, Y1, X1)
	BYTES($0x0404040404040404, Y2, X2)
	MOVQ 0(BX), R8
	MOVQ 8(BX), R9
	MOVQ 16(BX), R10
	MOVQ 24(BX), R11
	MOVQ 32(BX), R12

chunk:
	VMOVDQU   (SI), Y3
	VMOVDQU   32(SI), Y4
	VPOR      Y3, Y4, Y5
	VPMOVMSKB Y5, AX
	TESTL     AX, AX
	JNZ       wide
	SPACES(Y3, Y5, Y8)
	SPACES(Y4, Y6, Y9)
	VPOR      Y5, Y3, Y3
	VPOR      Y6, Y4, Y4
	VMOVDQU   Y3, (DI)
	VMOVDQU   Y4, 32(DI)
	VPMOVMSKB Y5, AX
	VPMOVMSKB Y6, DX
	SHLQ      $32, DX
	ORQ       DX, AX

	// White space after white space.
	LEAQ  (R8)(AX*2), DX
	TESTQ DX, AX
	JNZ   stop

	// Tokens that are too long, within the chunk and from before it.
	MOVQ AX, R13
	NOTQ R13
	ENDRUNS($1, R13, DX)
	ENDRUNS($2, R13, DX)
	ENDRUNS($4, R13, DX)
	ENDRUNS($8, R13, DX)
	TESTQ  R12, R13
	JNZ    stop
	TZCNTQ AX, DX
	ADDQ   R9, DX
	CMPQ   DX, R11
	JGT    stop

	// The end of a block.
	POPCNTQ AX, R13
	CMPQ    R13, R10
	JGE     stop

	SUBQ    R13, R10
	LZCNTQ  AX, R13
	MOVQ    $0, DX
	TESTQ   AX, AX
	CMOVQNE DX, R9
	ADDQ    R13, R9
	MOVQ    AX, R8
	SHRQ    $63, R8
	ADDQ    $64, SI
	ADDQ    step+24(FP), DI
	DECQ    CX
	JNZ     chunk
	MOVQ    $0, why+48(FP)

return:
	MOVQ n+16(FP), AX
	SUBQ CX, AX
	MOVQ AX, done+40(FP)
	MOVQ R8, 0(BX)
	MOVQ R9, 8(BX)
	MOVQ R10, 16(BX)
	VZEROUPPER
	RET

stop:
	MOVQ AX, 40(BX)
	MOVQ $1, why+48(FP)
	JMP  return

wide:
	MOVQ $2, why+48(FP)
	JMP  return
